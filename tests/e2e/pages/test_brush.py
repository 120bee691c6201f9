"""A mask that is painted over a picture, by the pointer and by the keyboard."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect
from support.browser import file_of
from support.pictures import picture
from support.pointer import around, drag
from support.sent_requests import Sent, sent_by

ENDPOINT = "gen-pro-1.0-fill"
WIDTH, HEIGHT = 320, 240


@pytest.fixture
def easel(page: Page) -> Locator:
    """The window in which the mask is painted."""
    page.goto(f"/?endpoint={ENDPOINT}")
    page.locator("[data-name=image] input").set_input_files(file_of("garden.png", picture(WIDTH, HEIGHT)))
    page.get_by_role("button", name="Paint it").click()
    return page.get_by_role("dialog", name="Paint a mask")


def mask_of(sent: Sent) -> Image.Image:
    data = base64.b64decode(sent.body["mask"].partition(",")[2])
    mask = Image.open(io.BytesIO(data)).convert("L")
    assert mask.size == (WIDTH, HEIGHT)
    return mask


def sent_with_mask(page: Page, easel: Locator) -> Sent:
    easel.get_by_role("button", name="Use this mask").click()
    expect(easel).to_have_count(0)
    page.locator("textarea").fill("a red star")
    return sent_by(page, ENDPOINT)


def test_what_the_pointer_paints_is_white(page: Page, easel: Locator) -> None:
    area = around(easel.get_by_role("img", name="The mask"))
    middle = area["y"] + area["height"] / 2
    drag(page, (area["x"] + area["width"] * 0.1, middle), (area["x"] + area["width"] * 0.4, middle))
    mask = mask_of(sent_with_mask(page, easel))
    assert mask.getpixel((WIDTH // 4, HEIGHT // 2)) == 255
    assert mask.getpixel((WIDTH * 3 // 4, HEIGHT // 2)) == 0


def test_a_click_leaves_a_dot(page: Page, easel: Locator) -> None:
    easel.get_by_role("img", name="The mask").click()
    mask = mask_of(sent_with_mask(page, easel))
    assert mask.getpixel((WIDTH // 2, HEIGHT // 2)) == 255
    assert mask.getpixel((5, 5)) == 0


def test_the_keyboard_paints_too_and_rubs_out(page: Page, easel: Locator) -> None:
    canvas = easel.get_by_role("img", name="The mask")
    canvas.press("Space")
    easel.get_by_role("button", name="Use this mask").click()
    page.get_by_role("button", name="Paint it").click()
    again = page.get_by_role("dialog", name="Paint a mask")
    canvas = again.get_by_role("img", name="The mask")
    canvas.press("ArrowRight")
    mask = mask_of(sent_with_mask(page, again))
    assert mask.getbbox() is not None, "what was painted before is still there"


def test_one_window_opens_however_often_it_is_asked_for(page: Page, easel: Locator) -> None:
    easel.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Paint it").dblclick()
    expect(easel).to_have_count(1)


def test_a_mask_that_is_given_up_is_none(page: Page, easel: Locator) -> None:
    easel.get_by_role("button", name="Cancel").click()
    page.locator("textarea").fill("a red star")
    page.get_by_role("button", name="Make it").click()
    expect(page.locator("[data-name=mask]").get_by_role("alert")).to_contain_text("Field required")
