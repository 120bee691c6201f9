"""What the project has asked for, as it comes."""

from __future__ import annotations

from playwright.sync_api import Page, expect
from support.browser import Behind
from support.pictures import picture
from support.sent_requests import sent_by
from support.worker import PICTURE_ENDPOINT

from serve_app.tasks.task import Status


def test_pictures_come_as_they_are_made(page: Page, behind: Behind) -> None:
    page.goto("/")
    page.locator("textarea").fill("a red star for the gallery")
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("article")).to_be_visible()
    task_id = page.request.get("/v1/tasks?limit=1").json()["tasks"][0]["id"]
    page.goto("/gallery")
    item = page.get_by_role("listitem").filter(has_text="a red star for the gallery").first
    expect(item.get_by_role("button", name="Cancel")).to_be_visible()
    behind(lambda worker: worker.advance(task_id, Status.GENERATING, progress=0.5))
    made = picture(form="JPEG")
    behind(lambda worker: worker.deliver(task_id, made, thumbnail=made))
    expect(item.get_by_role("img")).to_have_js_property("naturalWidth", 96)
    expect(item.get_by_role("button", name="Cancel")).to_have_count(0)
    page.get_by_label("Status").select_option("Error")
    expect(item).to_have_count(0)
    page.get_by_label("Status").select_option("Ready")
    expect(item).to_have_count(1)


def test_a_service_that_is_away_is_said_to_be(page: Page) -> None:
    page.goto("/gallery")
    expect(page.get_by_role("heading", name="Gallery")).to_be_visible()
    page.route("**/v1/tasks?*", lambda route: route.abort())
    expect(page.get_by_role("status").filter(has_text="trying again")).to_be_visible()
    page.unroute("**/v1/tasks?*")
    expect(page.get_by_role("status").filter(has_text="trying again")).to_have_count(0)


def test_the_queue_is_what_has_not_ended(page: Page, behind: Behind) -> None:
    page.goto("/")
    page.locator("textarea").fill("a red star in the queue")
    task_id = sent_by(page, PICTURE_ENDPOINT).id
    page.goto("/gallery")
    page.get_by_label("Status").select_option("In the queue")
    item = page.get_by_role("listitem").filter(has_text="a red star in the queue")
    expect(item.get_by_text("waits")).to_be_visible()
    cancel = item.get_by_role("button", name="Cancel")
    cancel.focus()
    behind(lambda worker: worker.advance(task_id, Status.GENERATING, progress=0.25))
    expect(item.get_by_text("is made")).to_be_visible()
    cancel.focus()
    behind(lambda worker: worker.advance(task_id, Status.GENERATING, progress=0.5))
    # It moves on in its place: whoever is about to press the button still can.
    expect(item.get_by_role("progressbar")).to_have_js_property("value", 0.5)
    expect(cancel).to_be_focused()
    behind(lambda worker: worker.end(task_id, Status.REQUEST_MODERATED))
    expect(item).to_have_count(0)
    page.get_by_label("Status").select_option("Refused")
    expect(item.get_by_text("refused")).to_be_visible()
