"""Pictures on a line that is as long as the clip."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect
from support.browser import Behind, file_of
from support.pictures import file_of as picture_file
from support.pointer import around, drag_by
from support.sent_requests import sent_by

from serve_app.tasks.task import Status

pytestmark = pytest.mark.slow

ENDPOINT = "gen-3-video"
RED, GREEN, BLUE = (picture_file(Image.new("RGB", (64, 64), colour)) for colour in ("red", "green", "blue"))


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


@pytest.fixture
def line(page: Page) -> Locator:
    """Of the form that makes a video of pictures."""
    page.goto(f"/?endpoint={ENDPOINT}")
    page.get_by_role("button", name="Pictures to video").click()
    page.locator("textarea").fill("a red circle moves to the right")
    return page.get_by_role("group", name="When each picture is seen")


def pick(page: Page, *pictures: bytes) -> None:
    page.locator("[data-name=keyframes] input[type=file]").set_input_files(
        [file_of("a.png", each) for each in pictures]
    )
    expect(page.get_by_role("slider", name=re.compile("Keyframe"))).to_have_count(len(pictures))


def drop(line: Locator, data: bytes, part: float) -> None:
    """A file that is dropped at a part of the line's length."""
    area = around(line)
    transfer = line.page.evaluate_handle(
        """data => {
            const transfer = new DataTransfer();
            const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
            transfer.items.add(new File([bytes], "dropped.png", {type: "image/png"}));
            return transfer;
        }""",
        base64.b64encode(data).decode(),
    )
    event: dict[str, Any] = {"dataTransfer": transfer, "clientX": area["x"] + part * area["width"]}
    line.dispatch_event("drop", event)


def test_pictures_without_times_are_sent_as_they_are(page: Page, line: Locator) -> None:
    pick(page, RED, GREEN, BLUE)
    expect(page.get_by_role("slider", name="Keyframe 2")).to_have_attribute("aria-valuetext", "2.5 seconds")
    page.get_by_label(re.compile("^Duration")).fill("8")
    expect(page.get_by_role("slider", name="Keyframe 2")).to_have_attribute("aria-valuetext", "4 seconds")
    assert sent_by(page, ENDPOINT).body["keyframes"] == [data_url(each) for each in (RED, GREEN, BLUE)]


def test_pictures_are_dropped_and_dragged(page: Page, line: Locator, behind: Behind) -> None:
    page.get_by_label(re.compile("^Duration")).fill("10")
    drop(line, BLUE, 0.8)
    expect(page.get_by_role("slider", name="Keyframe 1")).to_have_attribute("aria-valuenow", "8")
    drop(line, RED, 0.2)
    expect(page.get_by_role("slider", name="Keyframe 1")).to_have_attribute("aria-valuenow", "2")
    # Past the other: the order is that of time.
    drag_by(page, page.get_by_role("slider", name="Keyframe 1"), 0.7 * around(line)["width"], 0)
    expect(page.get_by_role("slider", name="Keyframe 2")).to_have_attribute("aria-valuenow", "9")
    sent = sent_by(page, ENDPOINT)
    assert sent.body["keyframes"] == [[8, data_url(BLUE)], [9, data_url(RED)]]
    assert behind(lambda worker: worker.job(sent.id)["clip"]["times"]) == [8, 9]


def test_pictures_are_moved_by_the_keyboard(page: Page, line: Locator) -> None:
    pick(page, RED, GREEN, BLUE)
    second = page.get_by_role("slider", name="Keyframe 2")
    second.press("ArrowRight")
    second.press("Shift+ArrowRight")
    expect(second).to_have_attribute("aria-valuenow", "3.6")
    # One that is passed keeps its place, and the focus stays with the picture.
    for _ in range(2):
        page.keyboard.press("Shift+ArrowRight")
    expect(second).to_have_attribute("aria-valuenow", "4.6")
    page.get_by_role("slider", name="Keyframe 3").press("Delete")
    expect(page.get_by_role("slider", name="Keyframe 2")).to_be_focused()
    assert sent_by(page, ENDPOINT).body["keyframes"] == [[0, data_url(RED)], [4.6, data_url(GREEN)]]


def test_a_time_is_typed_and_spread_again(page: Page, line: Locator) -> None:
    pick(page, RED, GREEN)
    page.get_by_label("Time of keyframe 2, seconds").fill("7.5")
    page.get_by_label("Time of keyframe 2, seconds").blur()
    expect(page.get_by_role("slider", name="Keyframe 2")).to_have_attribute("aria-valuemax", "8")
    assert sent_by(page, ENDPOINT).body["keyframes"] == [[0, data_url(RED)], [7.5, data_url(GREEN)]]
    page.get_by_role("button", name="Spread evenly").click()
    assert sent_by(page, ENDPOINT).body["keyframes"] == [data_url(RED), data_url(GREEN)]


def test_again_sends_the_same_kind_of_video(page: Page, line: Locator, behind: Behind) -> None:
    pick(page, RED)
    first = sent_by(page, ENDPOINT)
    behind(lambda worker: worker.end(first.id, Status.ERROR))
    page.get_by_role("button", name="Text to video").click()
    card = page.get_by_role("article").first
    with page.expect_request(lambda request: request.url.endswith(f"/v1/{ENDPOINT}")) as asked:
        card.get_by_role("button", name="Again").click()
    assert asked.value.post_data_json == first.body
