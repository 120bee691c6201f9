"""Boxes that are drawn become the structured prompt that the endpoint takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from support.browser import Behind, file_of
from support.pictures import picture
from support.pointer import around, drag, drag_by
from support.sent_requests import sent_by

from deployments.contract.job import LayoutRow

pytestmark = pytest.mark.slow

ENDPOINT = "gen-3-image-klein"


def rows_of(prompt: str) -> list[dict[str, Any]]:
    return json.loads(prompt[prompt.index("[") :])


@pytest.fixture
def frame(page: Page) -> Locator:
    """Of a square picture, so that a thousandth is as long across as down."""
    page.goto("/")
    page.locator("textarea").fill("a quiet room")
    page.locator(".ratio").filter(has_text="1:1").click()
    page.get_by_text("Place things").click()
    return page.get_by_role("group", name="Where things go")


def draw(page: Page, frame: Locator, start: tuple[float, float], end: tuple[float, float]) -> None:
    """A box between two points of the frame, as parts of its sides."""
    area = around(frame)

    def point(part: tuple[float, float]) -> tuple[float, float]:
        return area["x"] + part[0] * area["width"], area["y"] + part[1] * area["height"]

    drag(page, point(start), point(end))


def test_boxes_are_drawn_moved_and_resized_by_the_pointer(page: Page, frame: Locator, behind: Behind) -> None:
    draw(page, frame, (0.1, 0.2), (0.4, 0.6))
    page.keyboard.type("a sleeping cat")
    draw(page, frame, (0.9, 0.9), (0.6, 0.7))
    page.keyboard.type("a blue ball")
    boxes = page.get_by_role("application")
    expect(boxes).to_have_count(2)
    side = around(frame)["width"]
    drag_by(page, boxes.first, 0.1 * side, 0)
    drag_by(page, boxes.first.locator(".handle.bottom.right"), 0, 0.1 * side)

    sent = sent_by(page, ENDPOINT)
    cat, ball = rows_of(sent.body["prompt"])
    assert sent.body["prompt"].startswith('a quiet room [{"id":"box_1","bbox":')
    assert (cat["id"], cat["desc"], ball["id"], ball["desc"]) == ("box_1", "a sleeping cat", "box_2", "a blue ball")
    assert cat["bbox"] == pytest.approx([200, 200, 700, 500], abs=8)
    assert ball["bbox"] == pytest.approx([700, 600, 900, 900], abs=8)
    told = behind(lambda worker: worker.generation(sent.id).layout)
    assert told == tuple(LayoutRow(each["id"], tuple(each["bbox"]), each["desc"]) for each in (cat, ball))


def test_boxes_are_placed_by_the_keyboard(page: Page, frame: Locator) -> None:
    page.get_by_role("button", name="Add a box").press("Enter")
    box = page.get_by_role("application", name="box_1")
    expect(box).to_be_focused()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowUp", "Shift+ArrowRight", "Shift+ArrowDown", "Shift+ArrowDown"):
        page.keyboard.press(key)
    expect(box).to_have_accessible_name("box_1: no words yet, from 28 % to 69 % across, 29 % to 71 % down")
    page.keyboard.press("Tab")
    page.get_by_label("What is in box_1").fill("a lamp")
    page.get_by_role("button", name="Add a box").press("Enter")
    page.keyboard.press("Delete")
    expect(box).to_be_focused()
    rows = rows_of(sent_by(page, ENDPOINT).body["prompt"])
    assert rows == [{"id": "box_1", "bbox": [290, 280, 710, 690], "desc": "a lamp"}]


def test_a_box_stays_within_the_picture(page: Page, frame: Locator) -> None:
    draw(page, frame, (0.05, 0.05), (0.35, 0.35))
    page.keyboard.type("a lamp")
    drag_by(page, page.get_by_role("application"), -300, -300)
    (row,) = rows_of(sent_by(page, ENDPOINT).body["prompt"])
    assert row["bbox"][:2] == [0, 0]
    assert row["bbox"][2:] == pytest.approx([300, 300], abs=8)


def test_an_edit_moves_removes_and_adds_things(page: Page, frame: Locator) -> None:
    page.locator("[data-name=images] input[type=file]").first.set_input_files(file_of("room.png", picture(64, 64)))
    expect(page.get_by_role("button", name="Take the picture away")).to_be_visible()
    for index, (what, words) in enumerate((("moved", "the cat"), ("removed", "the lamp"), ("new", "a ball")), 1):
        page.get_by_role("button", name="Add a box").click()
        page.get_by_label(f"What is in box_{index}").fill(words)
        page.get_by_label(f"What happens with box_{index}").select_option(what)
    page.get_by_role("application", name="box_1").press("ArrowRight")
    rows = rows_of(sent_by(page, ENDPOINT).body["prompt"])
    middle = [300, 300, 700, 700]
    assert rows == [
        {"id": "box_1", "from": "ref_image_0", "src_bbox": middle, "tgt_bbox": [300, 310, 700, 710], "desc": "the cat"},
        {"id": "box_2", "from": "ref_image_0", "src_bbox": middle, "tgt_bbox": None, "desc": "the lamp"},
        {"id": "box_3", "from": None, "src_bbox": None, "tgt_bbox": middle, "desc": "a ball"},
    ]


def test_an_array_that_is_pasted_becomes_boxes(page: Page, frame: Locator) -> None:
    layout = [{"id": "cat_1", "bbox": [400, 300, 900, 700], "desc": "a sleeping cat"}]
    words = page.locator("textarea")
    words.fill(f"a room with <cat_1> {json.dumps(layout)}")
    words.blur()
    expect(words).to_have_value("a room with <cat_1>")
    expect(page.get_by_role("application", name="cat_1: a sleeping cat")).to_be_visible()
    assert rows_of(sent_by(page, ENDPOINT).body["prompt"]) == layout


def test_the_frame_has_the_ratio_that_is_chosen(page: Page, frame: Locator) -> None:
    page.locator(".ratio").filter(has_text="9:16").click()
    area = around(frame)
    assert area["width"] / area["height"] == pytest.approx(9 / 16, abs=0.01)
