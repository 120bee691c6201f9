"""What the project has asked for, as it comes; and what is done with it: passed on, worked on, run again."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from redis import Redis
from support.browser import Behind, file_payload, submit_form, submit_prompt
from support.http_client import HOOK
from support.http_service import Service
from support.images import image_file
from support.worker import Worker

from serve_app.tasks.task import Status
from serve_app.webhooks.outbox import AttemptRecord, DeliveryOutcome, Outbox

JPEG = image_file(form="JPEG")


def deliver(behind: Behind, task_id: str) -> None:
    behind(lambda worker: worker.deliver(task_id, JPEG, thumbnail=JPEG))


def open_dialog(page: Page, prompt: str) -> Locator:
    page.goto("/gallery")
    page.get_by_role("link", name=f"Open: {prompt}").click()
    return page.get_by_role("dialog")


def find_notice(page: Page, words: str) -> Locator:
    return page.get_by_role("status").filter(has_text=words)


def test_images_come_as_they_are_made(page: Page, behind: Behind) -> None:
    task_id = submit_prompt(page, "a red star for the gallery")
    page.goto("/gallery")
    item = page.get_by_role("listitem").filter(has_text="a red star for the gallery").first
    expect(item.get_by_role("button", name="Cancel")).to_be_visible()
    deliver(behind, task_id)
    expect(item.get_by_role("img")).to_have_js_property("naturalWidth", 96)
    expect(item.get_by_role("button", name="Cancel")).to_have_count(0)
    page.get_by_label("Status").select_option("Error")
    expect(item).to_have_count(0)
    page.get_by_label("Status").select_option("Ready")
    expect(item).to_have_count(1)
    page.route("**/v1/tasks?*", lambda route: route.abort())
    expect(find_notice(page, "trying again")).to_be_visible()
    page.unroute("**/v1/tasks?*")
    expect(find_notice(page, "trying again")).to_have_count(0)


def test_the_queue_is_what_has_not_ended(page: Page, behind: Behind) -> None:
    task_id = submit_prompt(page, "a red star in the queue")
    page.goto("/gallery")
    page.get_by_label("Status").select_option("In the queue")
    item = page.get_by_role("listitem").filter(has_text="a red star in the queue")
    expect(item.get_by_text("Queued")).to_be_visible()
    behind(lambda worker: worker.advance(task_id, Status.GENERATING, progress=0.25))
    expect(item.get_by_text("Generating")).to_be_visible()
    cancel = item.get_by_role("button", name="Cancel")
    cancel.focus()
    behind(lambda worker: worker.advance(task_id, Status.GENERATING, progress=0.5))
    # It moves on in its place: whoever is about to press the button still can.
    expect(item.get_by_role("progressbar")).to_have_js_property("value", 0.5)
    expect(cancel).to_be_focused()
    behind(lambda worker: worker.end(task_id, Status.REQUEST_MODERATED))
    expect(item).to_have_count(0)
    page.get_by_label("Status").select_option("Blocked")
    expect(item.get_by_text("Blocked")).to_be_visible()


def test_a_link_opens_a_task_that_the_list_lacks(page: Page, behind: Behind) -> None:
    task_id = submit_prompt(page, "a red star that is linked to")
    deliver(behind, task_id)
    page.goto(f"/gallery?status=Error#{task_id}")
    expect(page.get_by_role("dialog")).to_contain_text("a red star that is linked to")
    # In a day, as settings have it.
    tomorrow = page.evaluate("new Date(Date.now() + 864e5).toLocaleString('en', {month: 'short', day: 'numeric'})")
    expect(page.get_by_role("dialog").get_by_text(tomorrow)).to_be_in_viewport()
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_label("Status")).to_have_value("Error")
    page.get_by_label("Status").select_option("Ready")
    page.reload()
    expect(page.get_by_label("Status")).to_have_value("Ready")
    page.goto("/gallery#6f1c1f0e-3f0b-4b7e-9d6a-0d9a1b2c3d4e")
    expect(find_notice(page, "There is no task 6f1c1f0e")).to_be_in_viewport()


def test_an_image_is_shared_by_a_link_and_becomes_that_of_the_next_request(
    page: Page, browser: Browser, behind: Behind
) -> None:
    deliver(behind, submit_prompt(page, "a star to share"))
    dialog = open_dialog(page, "a star to share")
    dialog.get_by_role("button", name="Share", exact=True).click()
    shared = browser.new_page()  # of somebody who is not signed in
    link = dialog.locator(".secret").inner_text()
    dialog = open_dialog(page, "a star to share")
    expect(dialog.get_by_text("This result is shared by a link.")).to_be_visible()
    shared.goto(link)
    expect(shared.get_by_role("img")).to_be_in_viewport(ratio=1)
    expect(shared.get_by_role("img")).to_have_js_property("naturalWidth", 96)
    expect(shared.get_by_text("a star to share", exact=True).last).to_be_in_viewport()
    shared.get_by_role("link", name="Make one like it").click()
    expect(shared.locator("textarea")).to_have_value("a star to share")
    page.once("dialog", lambda question: question.accept())
    dialog.get_by_role("button", name="Revoke").click()
    expect(dialog.get_by_text("All links to this page are revoked.")).to_be_in_viewport()
    shared.goto(link)
    expect(shared.get_by_role("heading", name="This link no longer works")).to_be_visible()
    shared.close()
    dialog.get_by_role("link", name="Edit this").click()
    expect(page.locator(".slot.full img")).to_be_visible()
    page.locator("textarea").fill("make it blue")
    submission = submit_form(page)
    assert len(submission.body["images"]) == 1
    assert behind(lambda worker: len(worker.job(submission.id)["references"])) == 1


def test_a_task_has_a_page_of_its_own(page: Page, behind: Behind) -> None:
    task_id = submit_prompt(page, "a star with a page")
    page.goto(f"/t/{task_id}")
    expect(page.get_by_text("Queued").first).to_be_in_viewport()
    deliver(behind, task_id)
    expect(page.get_by_role("img", name="Result: a star with a page")).to_be_in_viewport()
    expect(page.get_by_text("Kept until")).to_be_visible()
    expect(page.get_by_text("0.9 credits")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    expect(page).to_have_url(re.compile("/gallery$"))
    expect(page.get_by_role("listitem").first).to_be_visible()
    expect(page.get_by_text("a star with a page")).to_have_count(0)
    page.goto("/t/6f1c1f0e-3f0b-4b7e-9d6a-0d9a1b2c3d4e")
    expect(find_notice(page, "There is no task 6f1c1f0e")).to_be_in_viewport()


def test_yesterday_s_image_is_found_by_its_words(page: Page, behind: Behind, service: Service) -> None:
    old, new = submit_prompt(page, "an Unusual moon of yesterday"), submit_prompt(page, "an unusual star of today")
    for task_id in (old, new):
        deliver(behind, task_id)
    key = f"{service.settings.redis.prefix}task:{old}"
    with Redis.from_url(service.settings.redis_url) as redis:
        redis.hincrby(key, "created", -86_400_000)
    page.goto("/gallery")
    page.get_by_label("Search prompts").fill("unusual MOON")
    expect(page.get_by_role("listitem")).to_have_count(1)
    expect(page.get_by_role("region", name="Yesterday").get_by_text("an Unusual moon of yesterday")).to_be_in_viewport()
    expect(page).to_have_url(re.compile("prompt=unusual"))
    page.reload()
    expect(page.get_by_role("listitem")).to_have_count(1)
    page.get_by_label("Search prompts").fill("unusual")
    expect(page.get_by_role("listitem")).to_have_count(2)
    expect(page.get_by_role("region", name="Today").get_by_text("an unusual star of today")).to_be_visible()


def test_several_are_deleted_at_once_and_keys_lead_from_one_to_the_next(page: Page, behind: Behind) -> None:
    for number in (1, 2, 3):
        deliver(behind, submit_prompt(page, f"one of three {number}"))
    page.goto("/gallery?prompt=one+of+three")
    page.get_by_role("link", name="Open: one of three 3").click()
    expect(page.get_by_role("dialog", name="one of three 3")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("dialog", name="one of three 2")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("dialog", name="one of three 3")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    for number in (1, 3):
        page.get_by_label(f"Select: one of three {number}").check()
    chosen = page.get_by_role("group", name="Selection")
    expect(chosen.get_by_text("2 selected")).to_be_in_viewport()
    page.once("dialog", lambda dialog: dialog.accept())
    chosen.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("listitem")).to_have_count(1)
    expect(chosen).to_be_hidden()
    page.reload()
    expect(page.get_by_role("listitem")).to_have_count(1)


@pytest.mark.slow
def test_a_webhook_s_attempts_are_seen_and_made_again(page: Page, behind: Behind, service: Service) -> None:
    def refused_once(worker: Worker) -> None:
        """One attempt at every delivery that is due, which its destination is too busy for."""

        async def attempt() -> None:
            outbox = Outbox(worker.tasks.redis, worker.tasks.prefix, at_rest=service.settings.at_rest())
            for claim in await outbox.claim(10):
                answer = AttemptRecord(1_700_000_000.0, 503, text="too busy", took_s=0.25)
                assert await outbox.record(claim, answer, DeliveryOutcome.FAILED)

        worker.run(attempt())

    page.goto("/")
    page.locator("textarea").fill("a star with a webhook")
    page.get_by_text("Advanced", exact=True).click()
    page.get_by_label(re.compile("^Webhook URL")).fill(HOOK)
    task_id = submit_form(page).id
    behind(lambda worker: worker.end(task_id, Status.ERROR, details={"error": "no luck"}))
    behind(refused_once)
    dialog = open_dialog(page, "a star with a webhook")
    expect(dialog.get_by_text("no luck")).to_be_visible()
    dialog.get_by_text("Webhook", exact=True).press("Enter")
    delivery_status = dialog.get_by_role("status")
    expect(delivery_status).to_contain_text("To https://hooks.test:443: failed and is not retried automatically.")
    expect(delivery_status.get_by_role("row").nth(1)).to_contain_text(re.compile("503.*too busy"))
    delivery_status.get_by_role("button", name="Send again").click()
    expect(delivery_status).to_contain_text("waits for its next attempt")
    assert page.request.get(f"/v1/tasks/{task_id}/deliveries").json()["state"] == "waiting"
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_a_task_without_a_webhook_says_so(page: Page, behind: Behind) -> None:
    deliver(behind, submit_prompt(page, "a star without a webhook"))
    open_dialog(page, "a star without a webhook").get_by_text("Webhook", exact=True).click()
    expect(find_notice(page, "without webhook_url")).to_be_visible()


@pytest.mark.slow
def test_a_request_is_run_again_with_all_its_fields(page: Page, behind: Behind) -> None:
    page.goto("/")
    page.locator("textarea").fill("a red star to run again")
    page.get_by_text("More ratios").click()
    page.locator(".ratio").filter(has_text="3:2").click()
    page.locator("[data-name=images] input[type=file]").first.set_input_files(file_payload("a.png", image_file(64, 64)))
    expect(page.get_by_role("button", name="Take the image away")).to_be_visible()
    page.get_by_text("Layout").click()
    page.get_by_role("button", name="Add a box").click()
    page.get_by_label("What is in box_1").fill("a lamp")
    page.get_by_text("Advanced", exact=True).click()
    page.get_by_label(re.compile("^Webhook URL")).fill("https://hooks.test/done")
    page.get_by_label(re.compile("^Webhook Secret")).fill("s3cret")
    first = submit_form(page)
    deliver(behind, first.id)
    assert "s3cret" not in page.evaluate("JSON.stringify(localStorage)")
    open_dialog(page, "a red star to run again").get_by_role("link", name="Run again with changes").click()
    expect(find_notice(page, "Not stored: webhook_secret.")).to_be_visible()
    page.locator(".seed input").fill("7")
    again = submit_form(page)
    del first.body["webhook_secret"]
    assert again.body == first.body | {"seed": 7}


def test_of_a_request_from_elsewhere_only_what_is_known_is_filled_in(page: Page, behind: Behind) -> None:
    page.goto("/")
    page.locator("textarea").fill("a star from elsewhere")
    page.get_by_text("More ratios").click()
    page.locator(".ratio").filter(has_text="21:9").click()
    task_id = submit_form(page).id
    # Another browser has kept nothing of it.
    page.evaluate("localStorage.clear()")
    deliver(behind, task_id)
    open_dialog(page, "a star from elsewhere").get_by_role("link", name="Run again with changes").click()
    expect(find_notice(page, "Known fields: prompt, seed")).to_be_visible()
    seed = behind(lambda worker: worker.job(task_id)["seed"])
    assert submit_form(page).body == {"prompt": "a star from elsewhere", "seed": seed}
    page.goto("/?again=6f1c1f0e-3f0b-4b7e-9d6a-0d9a1b2c3d4e")
    expect(find_notice(page, "not stored in this browser")).to_be_visible()
    expect(page.locator("textarea")).to_have_value("")
