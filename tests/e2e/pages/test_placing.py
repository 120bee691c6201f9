"""Editors of the playground, by pointer and keyboard: masks, frames, keyframes and boxes."""

from __future__ import annotations

import base64
import io
import json
import re
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect
from support.browser import Behind, around, drag_by, drag_within, file_payload, submit_form
from support.images import encode_image as png_file
from support.images import image_file

from deployments.contract.request import LayoutRow
from serve_app.tasks.task import Status

FILL, OUTPAINTING, VIDEO = "gen-pro-1.0-fill", "gen-tools/outpainting-v1", "gen-3-video"
GARDEN = file_payload("garden.png", image_file(320, 240))
RED, GREEN, BLUE = (png_file(Image.new("RGB", (64, 64), colour)) for colour in ("red", "green", "blue"))


@pytest.fixture
def easel(page: Page) -> Locator:
    """The dialog in which a mask is painted."""
    page.goto(f"/?endpoint={FILL}")
    page.locator("[data-name=image] input").set_input_files(GARDEN)
    page.get_by_role("button", name="Paint it").dblclick()
    easel = page.get_by_role("dialog", name="Paint a mask")
    expect(easel).to_have_count(1)
    return easel


def submit_mask(page: Page, easel: Locator) -> Image.Image:
    """Submits the form. Returns the mask that it sends."""
    easel.get_by_role("button", name="Use this mask").click()
    expect(easel).to_have_count(0)
    page.locator("textarea").fill("a red star")
    data = submit_form(page, FILL).body["mask"].partition(",")[2]
    mask = Image.open(io.BytesIO(base64.b64decode(data))).convert("L")
    assert mask.size == (320, 240)
    return mask


def test_pointer_paints_strokes_and_dots_and_undoes(page: Page, easel: Locator) -> None:
    canvas = easel.get_by_role("img", name="The mask")
    for y in (0.1, 0.9):
        drag_within(page, canvas, (0.2, y), (0.4, y))
    easel.get_by_role("button", name="Start over").click()
    for _ in range(2):
        easel.get_by_role("button", name="Undo").click()
    canvas.click()
    mask = submit_mask(page, easel)
    assert [mask.getpixel(at) for at in ((96, 24), (160, 120), (96, 216), (300, 120))] == [255, 255, 0, 0]


def test_keyboard_paints_on_the_earlier_mask(page: Page, easel: Locator) -> None:
    easel.get_by_role("img", name="The mask").press("Space")
    easel.get_by_role("button", name="Use this mask").click()
    page.get_by_role("button", name="Paint it").click()
    easel.get_by_role("img", name="The mask").press("ArrowRight")
    assert submit_mask(page, easel).getbbox() is not None


def test_cancelled_mask_is_not_sent(page: Page, easel: Locator) -> None:
    easel.get_by_role("button", name="Cancel").click()
    page.locator("textarea").fill("a red star")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("[data-name=mask]").get_by_role("alert")).to_contain_text("Field required")


@pytest.fixture
def canvas(page: Page) -> Locator:
    """Around an image of 320 x 240."""
    page.goto(f"/?endpoint={OUTPAINTING}")
    page.locator("[data-name=input_image] input").set_input_files(GARDEN)
    expect(page.get_by_label(re.compile("^Width"))).to_have_value("400")
    for name, value in (("Width", "320"), ("Height", "240"), ("Reference Offset X", "0"), ("Reference Offset Y", "0")):
        page.get_by_label(re.compile(f"^{name}")).fill(value)
    return page.get_by_role("group", name="The frame of the result").locator(".canvas")


def test_image_starts_with_a_margin_within_the_limit(page: Page) -> None:
    page.goto(f"/?endpoint={OUTPAINTING}")
    page.locator("[data-name=input_image] input").set_input_files(GARDEN)
    expect(page.get_by_label(re.compile("^Width"))).to_have_value("400")
    expect(page.locator(".send").get_by_text("credits")).to_be_visible()
    page.get_by_role("button", name="9:16").click()
    body = submit_form(page, OUTPAINTING).body
    del body["input_image"]
    assert body == {"width": 320, "height": 560, "reference_offset_x": 0, "reference_offset_y": 160}
    # The service allows 4 megapixels.
    page.locator("[data-name=input_image] input").set_input_files(file_payload("large.png", image_file(2400, 1600)))
    page.get_by_role("button", name="All around").click()
    expect(page.get_by_label(re.compile("^Width"))).to_have_value("2496")
    expect(page.get_by_role("button", name="9:16")).to_be_disabled()
    submit_form(page, OUTPAINTING)


@pytest.mark.slow
def test_edges_are_dragged_by_the_pointer(page: Page, canvas: Locator, behind: Behind) -> None:
    across, down = canvas.evaluate("e => [320 / e.clientWidth, 240 / e.clientHeight]")
    drag_by(page, page.get_by_role("slider", name="Right edge"), 160 / across, 0)
    expect(page.get_by_label(re.compile("^Width"))).to_have_value(re.compile("^4[78]."))
    drag_by(page, page.get_by_role("slider", name="Top edge"), 0, -60 / down)
    submission = submit_form(page, OUTPAINTING)
    width, height, left, top = (
        submission.body[name] for name in ("width", "height", "reference_offset_x", "reference_offset_y")
    )
    # A larger frame is shown at a smaller scale.
    assert [width, left] == pytest.approx([480, 0], abs=4)
    assert height - 240 == top >= 60
    assert behind(lambda worker: [worker.job(submission.id)[name] for name in ("width", "height")]) == [width, height]


def test_edges_are_moved_by_the_keyboard(page: Page, canvas: Locator) -> None:
    left = page.get_by_role("slider", name="Left edge")
    for key in ("ArrowLeft", "ArrowLeft", "ArrowRight"):
        left.press(key)
    bottom = page.get_by_role("slider", name="Bottom edge")
    bottom.press("Shift+ArrowDown")
    expect(bottom).to_have_attribute("aria-valuetext", "128 pixels beyond the image")
    # Edges do not move into the image, which would be refused.
    page.get_by_role("slider", name="Top edge").press("ArrowDown")
    body = submit_form(page, OUTPAINTING).body
    del body["input_image"]
    assert body == {"width": 336, "height": 368, "reference_offset_x": 16, "reference_offset_y": 0}


@pytest.mark.slow
def test_frame_follows_the_numbers_and_crops(page: Page, canvas: Locator) -> None:
    page.get_by_label(re.compile("^Width")).fill("640")
    page.get_by_label(re.compile("^Reference Offset X")).fill("")
    right = page.get_by_role("slider", name="Right edge")
    # Without an offset the image is centred.
    expect(right).to_have_attribute("aria-valuenow", "160")
    page.get_by_label(re.compile("^Reference Offset X")).fill("40")
    expect(right).to_have_attribute("aria-valuenow", "280")
    frame = around(canvas)
    assert frame["width"] / frame["height"] == pytest.approx(640 / 240, abs=0.02)
    body = submit_form(page, OUTPAINTING).body
    assert (body["width"], body["reference_offset_x"]) == (640, 40)
    page.get_by_label(re.compile("^Reference Offset X")).fill("0")
    page.get_by_text("Advanced", exact=True).click()
    page.get_by_label(re.compile("^Auto Crop")).check()
    page.get_by_role("slider", name="Left edge").press("ArrowRight")
    right.press("Shift+ArrowRight")
    body = submit_form(page, OUTPAINTING).body
    assert (body["width"], body["reference_offset_x"], body["auto_crop"]) == (640 - 16 + 128, -16, True)


@pytest.fixture
def line(page: Page) -> Locator:
    """The timeline in the form for a video from images."""
    page.goto(f"/?endpoint={VIDEO}")
    page.get_by_role("button", name="Images to video").click()
    page.locator("textarea").fill("a red circle moves to the right")
    return page.get_by_role("group", name="When each image is seen")


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def keyframe(page: Page, number: int) -> Locator:
    return page.get_by_role("slider", name=f"Keyframe {number}")


def pick(page: Page, *images: bytes) -> None:
    page.locator("[data-name=keyframes] input[type=file]").set_input_files([file_payload("a.png", it) for it in images])
    expect(page.get_by_role("slider", name=re.compile("Keyframe"))).to_have_count(len(images))


def drop(line: Locator, data: bytes, part: float) -> None:
    """Drops a file at a fraction of the line's length."""
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


@pytest.mark.slow
def test_images_without_times_are_sent_and_repeated(page: Page, line: Locator, behind: Behind) -> None:
    pick(page, RED, GREEN, BLUE)
    expect(keyframe(page, 2)).to_have_attribute("aria-valuetext", "2.5 seconds")
    page.get_by_label(re.compile("^Duration")).fill("8")
    expect(keyframe(page, 2)).to_have_attribute("aria-valuetext", "4 seconds")
    first = submit_form(page, VIDEO)
    assert first.body["keyframes"] == [data_url(each) for each in (RED, GREEN, BLUE)]
    behind(lambda worker: worker.end(first.id, Status.ERROR))
    page.get_by_role("button", name="Text to video").click()
    with page.expect_request(lambda request: request.url.endswith(f"/v1/{VIDEO}")) as request_info:
        page.get_by_role("article").first.get_by_role("button", name="Run again").click()
    assert request_info.value.post_data_json == first.body
    page.goto(f"/?again={first.id}")
    expect(keyframe(page, 1)).to_be_visible()
    assert submit_form(page, VIDEO).body == first.body


@pytest.mark.slow
def test_images_are_dropped_and_dragged(page: Page, line: Locator, behind: Behind) -> None:
    page.get_by_label(re.compile("^Duration")).fill("10")
    drop(line, BLUE, 0.8)
    expect(keyframe(page, 1)).to_have_attribute("aria-valuenow", "8")
    drop(line, RED, 0.2)
    expect(keyframe(page, 1)).to_have_attribute("aria-valuenow", "2")
    # Keyframes are ordered by time.
    drag_by(page, keyframe(page, 1), 0.7 * around(line)["width"], 0)
    expect(keyframe(page, 2)).to_have_attribute("aria-valuenow", "9")
    submission = submit_form(page, VIDEO)
    assert submission.body["keyframes"] == [[8, data_url(BLUE)], [9, data_url(RED)]]
    assert behind(lambda worker: worker.job(submission.id)["video"].times) == (8, 9)


def test_images_are_moved_by_the_keyboard(page: Page, line: Locator) -> None:
    pick(page, RED, GREEN, BLUE)
    second = keyframe(page, 2)
    second.press("ArrowRight")
    second.press("Shift+ArrowRight")
    expect(second).to_have_attribute("aria-valuenow", "3.6")
    # The other keyframe keeps its time, and the focus stays on the moved image.
    for _ in range(2):
        page.keyboard.press("Shift+ArrowRight")
    expect(second).to_have_attribute("aria-valuenow", "4.6")
    keyframe(page, 3).press("Delete")
    expect(keyframe(page, 2)).to_be_focused()
    assert submit_form(page, VIDEO).body["keyframes"] == [[0, data_url(RED)], [4.6, data_url(GREEN)]]


@pytest.mark.slow
def test_times_are_typed_and_spread_evenly(page: Page, line: Locator) -> None:
    pick(page, RED, GREEN)
    page.get_by_label("Time of keyframe 2, seconds").fill("7.5")
    page.get_by_label("Time of keyframe 2, seconds").blur()
    expect(keyframe(page, 2)).to_have_attribute("aria-valuemax", "8")
    assert submit_form(page, VIDEO).body["keyframes"] == [[0, data_url(RED)], [7.5, data_url(GREEN)]]
    page.get_by_role("button", name="Spread evenly").click()
    assert submit_form(page, VIDEO).body["keyframes"] == [data_url(RED), data_url(GREEN)]


@pytest.fixture
def room(page: Page) -> Locator:
    """The layout frame of a square image."""
    page.goto("/")
    page.locator("textarea").fill("a quiet room")
    page.locator(".ratio").filter(has_text="1:1").click()
    page.get_by_text("Layout").click()
    return page.get_by_role("group", name="Where things go")


def parse_rows(prompt: str) -> list[dict[str, Any]]:
    return json.loads(prompt[prompt.index("[") :])


@pytest.mark.slow
def test_boxes_are_drawn_moved_and_resized_by_the_pointer(page: Page, room: Locator, behind: Behind) -> None:
    drag_within(page, room, (0.1, 0.2), (0.4, 0.6))
    page.keyboard.type("a sleeping cat")
    drag_within(page, room, (0.9, 0.9), (0.6, 0.7))
    page.keyboard.type("a blue ball")
    boxes = page.get_by_role("application")
    expect(boxes).to_have_count(2)
    side = around(room)["width"]
    drag_by(page, boxes.first, 0.1 * side, 0)
    drag_by(page, boxes.first.locator(".handle.bottom.right"), 0, 0.1 * side)
    submission = submit_form(page)
    cat, ball = parse_rows(submission.body["prompt"])
    assert submission.body["prompt"].startswith('a quiet room [{"id":"box_1","bbox":')
    assert (cat["id"], cat["desc"], ball["id"], ball["desc"]) == ("box_1", "a sleeping cat", "box_2", "a blue ball")
    assert cat["bbox"] == pytest.approx([200, 200, 700, 500], abs=8)
    assert ball["bbox"] == pytest.approx([700, 600, 900, 900], abs=8)
    layout = behind(lambda worker: worker.generation(submission.id).request.layout)
    assert layout == tuple(LayoutRow(each["id"], tuple(each["bbox"]), each["desc"]) for each in (cat, ball))
    drag_by(page, boxes.first, -300, -300)
    assert parse_rows(submit_form(page).body["prompt"])[0]["bbox"] == pytest.approx([0, 0, 500, 300], abs=8)


def test_boxes_are_placed_by_the_keyboard(page: Page, room: Locator) -> None:
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
    rows = parse_rows(submit_form(page).body["prompt"])
    assert rows == [{"id": "box_1", "bbox": [290, 280, 710, 690], "desc": "a lamp"}]


@pytest.mark.slow
def test_layout_of_an_edit_moves_removes_and_adds(page: Page, room: Locator) -> None:
    page.locator("[data-name=images] input[type=file]").first.set_input_files(
        file_payload("room.png", image_file(64, 64))
    )
    expect(page.get_by_role("button", name="Take the image away")).to_be_visible()
    for index, (what, words) in enumerate((("moved", "the cat"), ("removed", "the lamp"), ("new", "a ball")), 1):
        page.get_by_role("button", name="Add a box").click()
        page.get_by_label(f"What is in box_{index}").fill(words)
        page.get_by_label(f"What happens with box_{index}").select_option(what)
    page.get_by_role("application", name="box_1").press("ArrowRight")
    middle, moved = [300, 300, 700, 700], [300, 310, 700, 710]
    assert parse_rows(submit_form(page).body["prompt"]) == [
        {"id": "box_1", "from": "ref_image_0", "src_bbox": middle, "tgt_bbox": moved, "desc": "the cat"},
        {"id": "box_2", "from": "ref_image_0", "src_bbox": middle, "tgt_bbox": None, "desc": "the lamp"},
        {"id": "box_3", "from": None, "src_bbox": None, "tgt_bbox": middle, "desc": "a ball"},
    ]


@pytest.mark.slow
def test_pasted_array_becomes_boxes(page: Page, room: Locator) -> None:
    page.locator(".ratio").filter(has_text="9:16").click()
    area = around(room)
    assert area["width"] / area["height"] == pytest.approx(9 / 16, abs=0.01)
    layout = [{"id": "cat_1", "bbox": [400, 300, 900, 700], "desc": "a sleeping cat"}]
    words = page.locator("textarea")
    words.fill(f"a room with <cat_1> {json.dumps(layout)}")
    words.blur()
    expect(words).to_have_value("a room with <cat_1>")
    expect(page.get_by_role("application", name="cat_1: a sleeping cat")).to_be_visible()
    assert parse_rows(submit_form(page).body["prompt"]) == layout
