"""What axe finds on every page, wide and narrow, light and dark; and a picture without a pointer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect
from support.browser import EXAMPLE, WIDE, Behind, file_of, looks, overflow
from support.http_service import Service
from support.pictures import picture

pytestmark = pytest.mark.slow

GRAVE = {"serious", "critical"}


def playground(page: Page) -> None:
    """With boxes, and a picture that is being made."""
    page.goto("/")
    page.locator("textarea").fill("a red star")
    page.get_by_text("Place things").click()
    page.get_by_role("button", name="Add a box").click()
    page.get_by_text("More", exact=True).click()
    page.get_by_text("As a program").click()
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("article").first).to_be_visible()
    expect(page.get_by_role("button", name="Copy").first).to_be_visible()


def outpainting(page: Page) -> None:
    page.goto("/?endpoint=gen-tools/outpainting-v1")
    page.locator("[data-name=input_image] input").set_input_files(file_of("garden.png", picture(320, 240)))
    expect(page.get_by_role("slider", name="Left edge")).to_have_attribute("aria-valuenow", "0")


def keyframes(page: Page) -> None:
    page.goto("/?endpoint=gen-3-video")
    page.get_by_role("button", name="Pictures to video").click()
    page.locator("[data-name=keyframes] input[type=file]").set_input_files([file_of("a.png", picture())] * 2)
    expect(page.get_by_role("slider", name="Keyframe 2")).to_be_visible()


def gallery(page: Page) -> None:
    page.goto("/")
    page.get_by_role("button", name=EXAMPLE).click()
    card = page.get_by_role("article").first
    card.get_by_role("button", name="Cancel").click()
    expect(card.get_by_text("failed")).to_be_visible()
    page.goto("/gallery")
    expect(page.get_by_role("link", name=f"Open: {EXAMPLE}").first).to_be_visible()


def task(page: Page) -> None:
    gallery(page)
    page.get_by_role("link", name=f"Open: {EXAMPLE}").first.click()
    page.get_by_role("dialog").get_by_text("Webhook", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="without webhook_url")).to_be_visible()


def account(page: Page) -> None:
    page.goto("/account")
    expect(page.get_by_role("region", name="Usage this month")).to_be_visible()


def fleet(page: Page) -> None:
    page.goto("/fleet")
    expect(page.get_by_role("article").first).to_be_visible()


def sign_in(page: Page) -> None:
    page.goto("/sign-in")
    page.get_by_text("With a key").click()


def consent(page: Page) -> None:
    page.goto("/consent#nothing")
    expect(page.get_by_role("alert")).to_contain_text("begin anew")


def invitation(page: Page) -> None:
    page.goto("/invitation#nothing")
    expect(page.get_by_role("heading", name="Join")).to_be_visible()


@pytest.mark.parametrize(
    "visit", [playground, outpainting, keyframes, gallery, task, account, fleet, sign_in, invitation, consent]
)
def test_nothing_keeps_anybody_out(browser: Browser, service: Service, visit: Callable[[Page], None]) -> None:
    # The pages' policy lets no script in but their own, and axe is one.
    context = browser.new_context(base_url=service.base_url, viewport=WIDE, reduced_motion="reduce", bypass_csp=True)
    page = context.new_page()
    visit(page)
    for look in looks(page):
        found: list[dict[str, Any]] = Axe().run(page).response["violations"]
        assert [told(each) for each in found if each["impact"] in GRAVE] == [], look
        assert overflow(page) == 0, look
    context.close()


def told(violation: dict[str, Any]) -> str:
    places = [f"{node['html']}: {node['failureSummary']}" for node in violation["nodes"]]
    return "\n".join([violation["id"], *places])


def focused(page: Page, element: Locator, presses: int = 60) -> None:
    """Goes on with the tab key until the element has the focus."""
    for _ in range(presses):
        if element.evaluate("each => each === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{element} is out of reach of the tab key")


def test_a_picture_is_made_without_a_pointer(page: Page, behind: Behind) -> None:
    page.goto("/")
    expect(page.get_by_role("button", name="Make it")).to_be_enabled()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("Enter")
    focused(page, page.locator("textarea"))
    page.keyboard.type("a red star by keys alone")
    focused(page, page.locator(".ratio input").first)
    page.keyboard.press("ArrowRight")
    focused(page, page.get_by_role("button", name="Make it"))
    with page.expect_response("**/v1/gen-3-image-klein") as answered:
        page.keyboard.press("Enter")
    task_id = answered.value.json()["id"]
    card = page.get_by_role("article").first
    focused(page, card.get_by_role("button", name="Cancel"))
    behind(lambda worker: worker.deliver(task_id, picture(form="JPEG")))
    expect(page.locator("#announcements")).to_have_text("Done: a red star by keys alone")
    focused(page, card.get_by_role("link", name="Download"))
    assert behind(lambda worker: worker.job(task_id)["prompt"]) == "a red star by keys alone"
