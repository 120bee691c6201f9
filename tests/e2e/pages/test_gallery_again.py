"""An earlier request is run again with changes: with all its fields where they are kept, never with made-up ones."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from support.browser import Behind, file_of
from support.pictures import picture
from support.sent_requests import sent_by

pytestmark = pytest.mark.slow

ENDPOINT = "gen-3-image-klein"


def deliver(behind: Behind, task_id: str) -> None:
    made = picture(form="JPEG")
    behind(lambda worker: worker.deliver(task_id, made, thumbnail=made))


def open_in_gallery(page: Page, prompt: str) -> None:
    page.goto("/gallery")
    page.get_by_role("link", name=f"Open: {prompt}").click()
    expect(page.get_by_role("dialog").get_by_role("img")).to_have_js_property("naturalWidth", 96)


def test_all_fields_are_there_again(page: Page, behind: Behind) -> None:
    page.goto("/")
    page.locator("textarea").fill("a red star to run again")
    page.locator(".ratio").filter(has_text="3:2").click()
    page.locator("[data-name=images] input[type=file]").first.set_input_files(file_of("a.png", picture(64, 64)))
    expect(page.get_by_role("button", name="Take the picture away")).to_be_visible()
    page.get_by_text("Place things").click()
    page.get_by_role("button", name="Add a box").click()
    page.get_by_label("What is in box_1").fill("a lamp")
    page.get_by_text("More", exact=True).click()
    page.get_by_label(re.compile("^Webhook URL")).fill("https://hooks.test/done")
    page.get_by_label(re.compile("^Webhook Secret")).fill("s3cret")
    first = sent_by(page, ENDPOINT)
    deliver(behind, first.id)
    assert "s3cret" not in page.evaluate("JSON.stringify(localStorage)")

    open_in_gallery(page, "a red star to run again")
    page.get_by_role("link", name="Run again with changes").click()
    expect(page.get_by_role("status").filter(has_text="Not kept: webhook_secret.")).to_be_visible()
    page.locator(".seed input").fill("7")
    again = sent_by(page, ENDPOINT)
    del first.body["webhook_secret"]
    assert again.body == first.body | {"seed": 7}


def test_a_video_has_the_form_that_it_was_sent_with(page: Page, behind: Behind) -> None:
    page.goto("/?endpoint=gen-3-video")
    page.get_by_role("button", name="Pictures to video").click()
    page.locator("textarea").fill("a red circle moves")
    page.locator("[data-name=keyframes] input[type=file]").set_input_files(file_of("a.png", picture(64, 64)))
    expect(page.get_by_role("slider", name="Keyframe 1")).to_be_visible()
    first = sent_by(page, "gen-3-video")
    page.goto(f"/?again={first.id}")
    expect(page.get_by_role("slider", name="Keyframe 1")).to_be_visible()
    assert sent_by(page, "gen-3-video").body == first.body


def test_of_a_request_from_elsewhere_only_what_is_known_is_filled_in(page: Page, behind: Behind) -> None:
    page.goto("/")
    page.locator("textarea").fill("a star from elsewhere")
    page.locator(".ratio").filter(has_text="21:9").click()
    task_id = sent_by(page, ENDPOINT).id
    # Another browser has kept nothing of it.
    page.evaluate("localStorage.clear()")
    deliver(behind, task_id)
    open_in_gallery(page, "a star from elsewhere")
    page.get_by_role("link", name="Run again with changes").click()
    expect(page.get_by_role("status").filter(has_text="prompt and seed can be known of it")).to_be_visible()
    seed = behind(lambda worker: worker.job(task_id)["seed"])
    assert sent_by(page, ENDPOINT).body == {"prompt": "a star from elsewhere", "seed": seed}


def test_of_a_request_that_is_nowhere_nothing_is_filled_in(page: Page) -> None:
    page.goto("/?again=6f1c1f0e-3f0b-4b7e-9d6a-0d9a1b2c3d4e")
    expect(page.get_by_role("status").filter(has_text="not known in this window")).to_be_visible()
    expect(page.locator("textarea")).to_have_value("")
