"""A finished picture is passed on, and worked on further."""

from __future__ import annotations

import httpx2
from playwright.sync_api import Page, expect
from support.browser import Behind
from support.pictures import picture
from support.sent_requests import sent_by

PICTURE = picture(form="JPEG")
ENDPOINT = "gen-3-image-klein"


def finished(page: Page, behind: Behind, prompt: str) -> str:
    """The id of a task whose window is open."""
    page.goto("/")
    page.locator("textarea").fill(prompt)
    task_id = sent_by(page, ENDPOINT).id
    behind(lambda worker: worker.deliver(task_id, PICTURE))
    page.goto(f"/gallery#{task_id}")
    expect(page.get_by_role("dialog")).to_be_visible()
    return task_id


def test_a_link_shows_it_to_whoever_has_no_key(page: Page, behind: Behind) -> None:
    finished(page, behind, "a star to share")
    page.get_by_role("dialog").get_by_role("button", name="Share").click()
    link = page.get_by_role("dialog").locator(".secret").inner_text()
    assert httpx2.get(link, trust_env=False, timeout=60).content == PICTURE


def test_it_becomes_the_picture_of_the_next_request(page: Page, behind: Behind) -> None:
    finished(page, behind, "a star to edit")
    page.get_by_role("dialog").get_by_role("link", name="Edit this").click()
    expect(page.locator(".slot.full img")).to_be_visible()
    page.locator("textarea").fill("make it blue")
    sent = sent_by(page, ENDPOINT)
    assert len(sent.body["images"]) == 1
    assert behind(lambda worker: len(worker.job(sent.id)["references"])) == 1
