"""The gallery and the pages of tasks: live updates, filters, links, deletion, webhooks and repetition."""

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


def test_gallery_follows_tasks_and_filters_by_status(page: Page, behind: Behind) -> None:
    prompts = ("a red star for the gallery", "a blue star for the gallery")
    done, blocked = (submit_prompt(page, prompt) for prompt in prompts)
    page.goto("/gallery")
    first, second = (page.get_by_role("listitem").filter(has_text=prompt) for prompt in prompts)
    expect(first.get_by_role("button", name="Cancel")).to_be_visible()
    deliver(behind, done)
    expect(first.get_by_role("img")).to_have_js_property("naturalWidth", 96)
    expect(first.get_by_role("button", name="Cancel")).to_have_count(0)
    status = page.get_by_label("Status")
    status.select_option("In the queue")
    expect(second.get_by_text("Queued")).to_be_visible()
    expect(first).to_have_count(0)
    behind(lambda worker: worker.advance(blocked, Status.GENERATING, progress=0.25))
    expect(second.get_by_text("Generating")).to_be_visible()
    cancel = second.get_by_role("button", name="Cancel")
    cancel.focus()
    behind(lambda worker: worker.advance(blocked, Status.GENERATING, progress=0.5))
    expect(second.get_by_role("progressbar")).to_have_js_property("value", 0.5)
    expect(cancel).to_be_focused()  # the item is updated in place
    behind(lambda worker: worker.end(blocked, Status.REQUEST_MODERATED))
    expect(second).to_have_count(0)
    for option, shown, hidden in (("Blocked", second, first), ("Ready", first, second)):
        status.select_option(option)
        expect(shown).to_have_count(1)
        expect(hidden).to_have_count(0)
    page.route("**/v1/tasks?*", lambda route: route.abort())
    expect(find_notice(page, "trying again")).to_be_visible()
    page.unroute("**/v1/tasks?*")
    expect(find_notice(page, "trying again")).to_have_count(0)


def test_link_opens_a_task_outside_the_filter(page: Page, behind: Behind) -> None:
    task_id = submit_prompt(page, "a red star that is linked to")
    deliver(behind, task_id)
    page.goto(f"/gallery?status=Error#{task_id}")
    expect(page.get_by_role("dialog")).to_contain_text("a red star that is linked to")
    tomorrow = page.evaluate("new Date(Date.now() + 864e5).toLocaleString('en', {month: 'short', day: 'numeric'})")
    expect(page.get_by_role("dialog").get_by_text(tomorrow)).to_be_in_viewport()
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_label("Status")).to_have_value("Error")
    page.get_by_label("Status").select_option("Ready")
    page.reload()
    expect(page.get_by_label("Status")).to_have_value("Ready")
    page.goto("/gallery#6f1c1f0e-3f0b-4b7e-9d6a-0d9a1b2c3d4e")
    expect(find_notice(page, "There is no task 6f1c1f0e")).to_be_in_viewport()


def test_image_is_shared_by_a_link_and_edited(page: Page, browser: Browser, behind: Behind) -> None:
    deliver(behind, submit_prompt(page, "a star to share"))
    dialog = open_dialog(page, "a star to share")
    dialog.get_by_role("button", name="Share", exact=True).click()
    shared = browser.new_page()  # not signed in
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


def test_task_has_its_own_page(page: Page, behind: Behind) -> None:
    task_id = submit_prompt(page, "a star with a page")
    page.goto(f"/t/{task_id}")
    expect(page.get_by_text("Queued").first).to_be_in_viewport()
    deliver(behind, task_id)
    expect(page.get_by_role("img", name="Result: a star with a page")).to_be_in_viewport()
    expect(page.get_by_text("Kept until")).to_be_visible()
    expect(page.get_by_text("0.9 credits")).to_be_visible()
    page.get_by_text("Webhook", exact=True).click()
    expect(find_notice(page, "without webhook_url")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    expect(page).to_have_url(re.compile("/gallery$"))
    expect(page.get_by_role("listitem").first).to_be_visible()
    expect(page.get_by_text("a star with a page")).to_have_count(0)
    page.goto("/t/6f1c1f0e-3f0b-4b7e-9d6a-0d9a1b2c3d4e")
    expect(find_notice(page, "There is no task 6f1c1f0e")).to_be_in_viewport()


def test_search_finds_prompts_of_past_days(page: Page, behind: Behind, service: Service) -> None:
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


def test_arrow_keys_browse_and_selected_tasks_are_deleted(page: Page, behind: Behind) -> None:
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
def test_webhook_attempts_are_listed_and_replayed(page: Page, behind: Behind, service: Service) -> None:
    def fail_deliveries(worker: Worker) -> None:
        """Records a failed attempt of each due delivery."""

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
    behind(fail_deliveries)
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


@pytest.mark.slow
def test_request_is_repeated_with_all_its_fields(page: Page, behind: Behind) -> None:
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


def test_request_from_another_browser_is_repeated_in_part(page: Page, behind: Behind) -> None:
    page.goto("/")
    page.locator("textarea").fill("a star from elsewhere")
    page.get_by_text("More ratios").click()
    page.locator(".ratio").filter(has_text="21:9").click()
    task_id = submit_form(page).id
    page.evaluate("localStorage.clear()")
    deliver(behind, task_id)
    open_dialog(page, "a star from elsewhere").get_by_role("link", name="Run again with changes").click()
    expect(find_notice(page, "Known fields: prompt, seed")).to_be_visible()
    seed = behind(lambda worker: worker.job(task_id)["seed"])
    assert submit_form(page).body == {"prompt": "a star from elsewhere", "seed": seed}
    page.goto("/?again=6f1c1f0e-3f0b-4b7e-9d6a-0d9a1b2c3d4e")
    expect(find_notice(page, "not stored in this browser")).to_be_visible()
    expect(page.locator("textarea")).to_have_value("")
