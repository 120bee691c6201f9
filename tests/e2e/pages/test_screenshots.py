"""Every page as a picture, light and dark, wide and narrow.

`SCREENSHOTS=docs/pages` writes those that docs/pages.md shows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from support.browser import WIDE, Behind, looks, overflow
from support.drawn import Drawn, drawn
from support.http_service import Service, running
from support.pointer import around, drag
from support.sent_requests import sent_by
from support.worker import PICTURE_ENDPOINT

from serve_app.accounts.roles import Role
from serve_app.config.settings import AccountSettings, TaskSettings
from serve_app.tasks.task import Status

pytestmark = pytest.mark.slow

IN_DOCS: Final = {
    "playground-wide-light",
    "boxes-narrow-light",
    "outpainting-narrow-light",
    "keyframes-narrow-dark",
    "gallery-wide-light",
    "task-wide-dark",
    "fleet-wide-light",
    "account-wide-light",
}
BUSY: Final = ((24, 8, 4.2), (3, 2, 21.0), (9, 4, 12.5))
"""What waits, what runs and how long one takes, of the first lanes."""
QUALITY: Final = 72


@dataclass(frozen=True)
class Studio:
    """A service of its own, so that nothing but this is on its pages."""

    base_url: str
    behind: Behind
    pictures: list[Drawn]


@pytest.fixture(scope="module")
def studio(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    pictures = drawn(repository)
    tasks, accounts = TaskSettings(lease_s=3600), AccountSettings(local_role=Role.OPERATOR)
    folder = tmp_path_factory.mktemp("studio")
    # All of it in a thread: Playwright has the event loop of this one.
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        context = running(folder, redis_url, repository, tasks=tasks, accounts=accounts)
        service = pool.submit(context.__enter__).result()
        stack.callback(lambda: pool.submit(context.__exit__, None, None, None).result())
        pool.submit(filled, service, pictures).result()
        yield Studio(service.base_url, lambda do: pool.submit(do, service.worker).result(), pictures)


def filled(service: Service, pictures: list[Drawn]) -> None:
    """Pictures that are finished, one that is being made, and some that wait."""
    worker = service.worker
    with service.client("default") as client:
        for each in pictures:
            task_id = client.ordered(PICTURE_ENDPOINT, prompt=each.prompt, aspect_ratio="4:3")
            worker.deliver(task_id, each.large, thumbnail=each.small)
        task_id = client.ordered(PICTURE_ENDPOINT, prompt="a large cyan ring on a black background")
        worker.advance(task_id, Status.GENERATING, progress=0.6)
        for prompt in ("a white moon at the top", "three small red stars"):
            client.ordered(PICTURE_ENDPOINT, prompt=prompt)


def playground(page: Page, studio: Studio) -> None:
    picture = studio.pictures[10]
    page.goto("/")
    page.locator("textarea").fill(picture.prompt)
    page.locator(".ratio").filter(has_text="4:3").click()
    expect(page.locator(".send").get_by_text("credits")).to_be_visible()
    task_id = sent_by(page, PICTURE_ENDPOINT).id
    studio.behind(lambda worker: worker.deliver(task_id, picture.large, thumbnail=picture.small))
    expect(page.get_by_role("article").first.get_by_role("img")).to_have_js_property("naturalWidth", 800)


def boxes(page: Page, studio: Studio) -> None:
    page.goto("/")
    page.locator("textarea").fill("two shapes on a yellow background")
    page.locator(".ratio").filter(has_text="4:3").click()
    page.get_by_text("Place things").click()
    frame = page.get_by_role("group", name="Where things go")
    for words, start, end in (
        ("a red triangle", (0.15, 0.08), (0.41, 0.4)),
        ("a green circle", (0.64, 0.55), (0.94, 0.95)),
    ):
        area = around(frame)
        corners = [(area["x"] + x * area["width"], area["y"] + y * area["height"]) for x, y in (start, end)]
        drag(page, corners[0], corners[1])
        page.keyboard.type(words)


def outpainting(page: Page, studio: Studio) -> None:
    page.goto("/?endpoint=gen-tools/outpainting-v1")
    page.locator("[data-name=input_image] input").set_input_files(
        {"name": "heart.jpeg", "mimeType": "image/jpeg", "buffer": studio.pictures[10].large}
    )
    right = page.get_by_role("slider", name="Right edge")
    expect(right).to_have_attribute("aria-valuenow", "0")
    for _ in range(3):
        right.press("Shift+ArrowRight")
    page.get_by_role("slider", name="Top edge").press("Shift+ArrowUp")


def keyframes(page: Page, studio: Studio) -> None:
    page.goto("/?endpoint=gen-3-video")
    page.get_by_role("button", name="Pictures to video").click()
    page.locator("textarea").fill("one shape becomes the next")
    page.locator("[data-name=keyframes] input[type=file]").set_input_files(
        [{"name": "a.jpeg", "mimeType": "image/jpeg", "buffer": studio.pictures[at].small} for at in (2, 7, 14)]
    )
    middle = page.get_by_role("slider", name="Keyframe 2")
    middle.press("Shift+ArrowLeft")


def gallery(page: Page, studio: Studio) -> None:
    page.goto("/gallery")
    expect(page.get_by_role("listitem").nth(20)).to_be_attached()
    for at in range(4):
        expect(page.locator("img.thumb").nth(at)).to_have_js_property("naturalWidth", 200)


def task(page: Page, studio: Studio) -> None:
    gallery(page, studio)
    page.get_by_role("link", name=f"Open: {studio.pictures[12].prompt}").click()
    expect(page.get_by_role("dialog").get_by_role("img")).to_have_js_property("naturalWidth", 800)


def fleet(page: Page, studio: Studio) -> None:
    """With figures of a day on which there is much to do: here nothing takes any time."""

    def busier(route: Route) -> None:
        answer = route.fetch().json()
        for lane, (queued, runs, mean) in zip(answer["lanes"], BUSY, strict=False):
            work = {"tasks": 900, "mean": mean, "half": mean, "most": 2 * mean}
            wait = {"tasks": 900, "mean": mean, "half": queued, "most": 3.0 * queued}
            seconds = {"queued_s": queued * mean, "predicted_wait_s": queued * mean / runs}
            lane |= {
                "queued": queued,
                "running": runs,
                "work": work,
                "wait": wait,
                "ended": {"Ready": 900},
                "replicas": {"RUNNING": 2},
                "batch": 8,
                "step_s": mean / 20,
                **seconds,
            }
        route.fulfill(json=answer)

    page.route("**/v1/admin/fleet", busier)
    page.goto("/fleet")
    expect(page.get_by_role("article").first).to_be_visible()


def account(page: Page, studio: Studio) -> None:
    page.goto("/account")
    expect(page.get_by_role("region", name="Usage this month")).to_be_visible()


def sign_in(page: Page, studio: Studio) -> None:
    page.goto("/sign-in")
    expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()


@pytest.mark.parametrize("visit", [gallery, task, playground, boxes, outpainting, keyframes, fleet, account, sign_in])
def test_pages_look_like_this(
    browser: Browser,
    studio: Studio,
    visit: Callable[[Page, Studio], None],
    tmp_path: Path,
    repository: Path,
) -> None:
    context = browser.new_context(base_url=studio.base_url, viewport=WIDE, reduced_motion="reduce")
    page = context.new_page()
    visit(page, studio)
    kept = os.environ.get("SCREENSHOTS")
    for look in looks(page):
        page.evaluate("document.getElementById('form')?.scrollTo(0, 0)")
        name = f"{visit.__name__}-{look}"
        folder = repository / kept if kept and name in IN_DOCS else tmp_path
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / f"{name}.jpeg", type="jpeg", quality=QUALITY)
        assert overflow(page) == 0, look
    context.close()
