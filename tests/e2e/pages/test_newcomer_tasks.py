"""Ten first tasks of a newcomer, each within a number of clicks.

Each starts on the playground. A click is a press of the pointer: one into a field before typing, two for a list and its
option, one to choose a file. The limits are the clicks on the playgrounds and dashboards of fal and Replicate, the
lower where both have the task.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect
from redis import Redis
from support.browser import EXAMPLE, Behind, drag_within, file_payload, submit_prompt
from support.http_service import Service
from support.images import image_file

JPEG = image_file(form="JPEG")


_COUNT = """addEventListener("pointerdown", () =>
  sessionStorage.setItem("presses", 1 + Number(sessionStorage.getItem("presses"))), true)"""


class Newcomer:
    def __init__(self, page: Page) -> None:
        self.page = page
        self._more = 0
        """Clicks in lists and windows of the browser, which the page does not see."""

    @property
    def clicks(self) -> int:
        return self._more + int(self.page.evaluate("sessionStorage.getItem('presses')") or 0)

    def start(self) -> None:
        """Opens the playground, from which clicks are counted."""
        self.page.goto("/")
        expect(self.page.get_by_role("button", name="Generate")).to_be_enabled()
        self.reset()

    def reset(self) -> None:
        self._more = 0
        self.page.evaluate("sessionStorage.removeItem('presses')")

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def follow(self, name: str) -> None:
        self.page.get_by_role("link", name=name).click()

    def type(self, element: Locator, text: str) -> None:
        element.click()
        self.page.keyboard.type(text)

    def choose(self, name: str, option: str) -> None:
        self.page.get_by_label(name).select_option(option)
        self._more += 2

    def pick_image(self, element: Locator) -> None:
        element.set_input_files(file_payload("garden.png", image_file(320, 240)))
        self._more += 1


@pytest.fixture
def newcomer(page: Page) -> Newcomer:
    page.add_init_script(_COUNT)
    newcomer = Newcomer(page)
    newcomer.start()
    return newcomer


def deliver_newest(newcomer: Newcomer, behind: Behind) -> None:
    expect(newcomer.page.get_by_role("article").first).to_be_visible()
    (task_id, *_) = newcomer.page.evaluate("JSON.parse(sessionStorage.getItem('request:recent'))")
    behind(lambda worker: worker.deliver(task_id, JPEG, thumbnail=JPEG))


def test_first_image_is_made_and_shared(newcomer: Newcomer, behind: Behind) -> None:
    newcomer.page.get_by_role("button", name=EXAMPLE).click()
    deliver_newest(newcomer, behind)
    expect(newcomer.page.get_by_role("img", name="Result:")).to_be_in_viewport()
    assert newcomer.clicks <= 3, "a model, the prompt, run"
    newcomer.reset()
    newcomer.press("Share")
    expect(newcomer.page.locator("a.secret")).to_be_in_viewport()
    newcomer.press("Copy")
    assert newcomer.clicks <= 2, "share, copy"


def test_image_is_edited_with_a_mask(newcomer: Newcomer, behind: Behind) -> None:
    page = newcomer.page
    newcomer.choose("Endpoint", "gen-pro-1.0-fill")
    newcomer.pick_image(page.locator("[data-name=image] input"))
    newcomer.press("Paint it")
    drag_within(page, page.get_by_role("img", name="The mask"), (0.1, 0.5), (0.4, 0.5))
    newcomer.press("Use this mask")
    newcomer.type(page.locator("textarea"), "a red star")
    newcomer.press("Generate")
    deliver_newest(newcomer, behind)
    expect(page.get_by_text("Done", exact=True)).to_be_in_viewport()
    assert newcomer.clicks <= 8, "search, a model, the image, its mask editor, a stroke, save, the prompt, run"


def test_video_is_made(newcomer: Newcomer) -> None:
    newcomer.choose("Endpoint", "gen-3-video")
    newcomer.type(newcomer.page.locator("textarea"), "a red circle moves to the right")
    newcomer.press("Generate")
    expect(newcomer.page.get_by_role("article").first.get_by_text("gen-3-video")).to_be_in_viewport()
    assert newcomer.clicks <= 4, "search, a model, the prompt, run"


def test_queue_and_past_images_are_found(newcomer: Newcomer, behind: Behind, service: Service) -> None:
    page = newcomer.page
    past = submit_prompt(page, "a lamp of the day before")
    behind(lambda worker: worker.deliver(past, JPEG, thumbnail=JPEG))
    with Redis.from_url(service.settings.redis_url) as redis:
        redis.hincrby(f"{service.settings.redis.prefix}task:{past}", "created", -86_400_000)
    submit_prompt(page, "a lamp of today")
    newcomer.reset()
    newcomer.follow("Gallery")
    today = page.get_by_role("region", name="Today")
    expect(today.get_by_role("listitem").first.get_by_text("Queued")).to_be_in_viewport()
    assert newcomer.clicks <= 2, "the dashboard, requests"
    newcomer.type(page.get_by_label("Search prompts"), "lamp of the day")
    page.get_by_role("region", name="Yesterday").get_by_role("link", name="lamp of the day before").click()
    expect(page.get_by_role("dialog")).to_contain_text("a lamp of the day before")
    assert newcomer.clicks <= 3, "the dashboard, predictions, the one"


def test_account_is_set_up(newcomer: Newcomer) -> None:
    page = newcomer.page
    submit_prompt(page, "a red star that is paid for")
    newcomer.reset()
    newcomer.follow("Account")
    page.get_by_text("Ledger").click()
    expect(page.get_by_role("row", name=re.compile("On hold · gen-3-image-klein")).first).to_be_in_viewport()
    assert newcomer.clicks <= 2, "the menu, billing"

    newcomer.start()
    newcomer.follow("Account")
    newcomer.type(page.get_by_label("Name of the key"), "first")
    newcomer.press("Make a key")
    newcomer.press("Copy")
    assert newcomer.clicks <= 5, "the menu, API tokens, a name, create, copy"

    newcomer.start()
    newcomer.follow("Account")
    newcomer.type(page.get_by_label("Limit of a month, credits").first, "100000")
    newcomer.press("Save limits")
    expect(page.get_by_text("Saved.")).to_be_in_viewport()
    assert newcomer.clicks <= 4, "the menu, billing, a limit, save"

    newcomer.start()
    newcomer.follow("Account")
    newcomer.press("Invite someone")
    page.get_by_role("region", name="Members").get_by_role("button", name="Copy").click()
    assert newcomer.clicks <= 6, "the dashboard, members, invite, an address, a role, send"
