"""A frame that is pulled outward, and the numbers beside it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect
from support.browser import Behind, file_of
from support.pictures import picture
from support.pointer import around, drag_by
from support.sent_requests import sent_by

pytestmark = pytest.mark.slow

ENDPOINT = "gen-tools/outpainting-v1"


@pytest.fixture
def frame(page: Page) -> Locator:
    """Around a picture of 320 x 240."""
    page.goto(f"/?endpoint={ENDPOINT}")
    page.locator("[data-name=input_image] input").set_input_files(file_of("garden.png", picture(320, 240)))
    frame = page.get_by_role("group", name="The frame of the result")
    expect(frame).to_be_visible()
    expect(page.get_by_label(re.compile("^Width"))).to_have_value("320")
    return frame


def test_edges_are_pulled_by_the_pointer(page: Page, frame: Locator, behind: Behind) -> None:
    across, down = frame.locator(".canvas").evaluate("e => [320 / e.clientWidth, 240 / e.clientHeight]")
    drag_by(page, page.get_by_role("slider", name="Right edge"), 160 / across, 0)
    expect(page.get_by_label(re.compile("^Width"))).to_have_value(re.compile("^4[78]."))
    shown = around(frame.locator(".canvas"))
    assert shown["width"] / shown["height"] == pytest.approx(480 / 240, abs=0.05)
    drag_by(page, page.get_by_role("slider", name="Top edge"), 0, -60 / down)
    sent = sent_by(page, ENDPOINT)
    numbers = [sent.body[name] for name in ("width", "height", "reference_offset_x", "reference_offset_y")]
    # The frame is shown smaller once it is larger, so that a pixel is more of it the second time.
    assert numbers[::2] == pytest.approx([480, 0], abs=4)
    assert numbers[3] >= 60
    assert numbers[1] == 240 + numbers[3]
    made = behind(lambda worker: [worker.job(sent.id)[name] for name in ("width", "height")])
    assert made == numbers[:2]


def test_edges_are_pulled_by_the_keyboard(page: Page, frame: Locator) -> None:
    left = page.get_by_role("slider", name="Left edge")
    left.press("ArrowLeft")
    left.press("ArrowLeft")
    left.press("ArrowRight")
    bottom = page.get_by_role("slider", name="Bottom edge")
    bottom.press("Shift+ArrowDown")
    expect(bottom).to_have_attribute("aria-valuetext", "128 pixels beyond the picture")
    # Not into the picture: that would be refused.
    page.get_by_role("slider", name="Top edge").press("ArrowDown")
    body = sent_by(page, ENDPOINT).body
    del body["input_image"]
    assert body == {"width": 336, "height": 368, "reference_offset_x": 16, "reference_offset_y": 0}


def test_the_frame_follows_the_numbers(page: Page, frame: Locator) -> None:
    page.get_by_label(re.compile("^Width")).fill("640")
    right = page.get_by_role("slider", name="Right edge")
    # Without an offset the picture is in the middle.
    expect(right).to_have_attribute("aria-valuenow", "160")
    page.get_by_label(re.compile("^Reference Offset X")).fill("40")
    expect(right).to_have_attribute("aria-valuenow", "280")
    shown = around(frame.locator(".canvas"))
    assert shown["width"] / shown["height"] == pytest.approx(640 / 240, abs=0.02)
    body = sent_by(page, ENDPOINT).body
    assert (body["width"], body["reference_offset_x"]) == (640, 40)


def test_what_is_cut_off_may_be_pushed_in(page: Page, frame: Locator) -> None:
    page.get_by_text("More", exact=True).click()
    page.get_by_label(re.compile("^Auto Crop")).check()
    page.get_by_role("slider", name="Left edge").press("ArrowRight")
    page.get_by_role("slider", name="Right edge").press("Shift+ArrowRight")
    body = sent_by(page, ENDPOINT).body
    assert (body["width"], body["reference_offset_x"], body["auto_crop"]) == (320 - 16 + 128, -16, True)
