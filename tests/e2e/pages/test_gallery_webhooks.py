"""How a webhook fares, and having it sent again."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from support.browser import Behind
from support.client import HOOK
from support.http_service import Service
from support.sent_requests import sent_by
from support.worker import Worker

from serve_app.tasks.task import Status
from serve_app.webhooks.outbox import DeliveryAttempt, Outbox

pytestmark = pytest.mark.slow

ENDPOINT = "gen-3-image-klein"


def refused_once(worker: Worker, service: Service) -> None:
    """One attempt at every delivery that is due, which its receiver is too busy for."""

    async def attempt() -> None:
        outbox = Outbox(worker.tasks.redis, worker.tasks.prefix, at_rest=service.settings.at_rest())
        for claim in await outbox.claim(10):
            answer = DeliveryAttempt(1_700_000_000.0, 503, text="too busy", took_s=0.25)
            assert await outbox.record(claim, answer, "failed")

    worker.run(attempt())


def test_attempts_are_seen_and_made_again(page: Page, behind: Behind, service: Service) -> None:
    page.goto("/")
    page.locator("textarea").fill("a star with a webhook")
    page.get_by_text("More", exact=True).click()
    page.get_by_label(re.compile("^Webhook URL")).fill(HOOK)
    task_id = sent_by(page, ENDPOINT).id
    behind(lambda worker: worker.end(task_id, Status.ERROR, details={"error": "no luck"}))
    behind(lambda worker: refused_once(worker, service))

    page.goto("/gallery")
    page.get_by_role("link", name="Open: a star with a webhook").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("no luck")).to_be_visible()
    dialog.get_by_text("Webhook", exact=True).press("Enter")
    told = dialog.get_by_role("status")
    expect(told).to_contain_text("To https://hooks.test:443: failed, and is not tried again by itself.")
    expect(told.get_by_role("row").nth(1)).to_contain_text("503")
    expect(told.get_by_role("row").nth(1)).to_contain_text("too busy")
    told.get_by_role("button", name="Send again").click()
    expect(told).to_contain_text("waits for its next try")
    state = page.request.get(f"/v1/tasks/{task_id}/deliveries").json()["state"]
    assert state == "waiting"
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_a_task_without_a_webhook_says_so(page: Page, behind: Behind) -> None:
    page.goto("/")
    page.locator("textarea").fill("a star without a webhook")
    task_id = sent_by(page, ENDPOINT).id
    behind(lambda worker: worker.end(task_id, Status.ERROR, details={"error": "no luck"}))
    page.goto("/gallery")
    page.get_by_role("link", name="Open: a star without a webhook").click()
    page.get_by_role("dialog").get_by_text("Webhook", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="without webhook_url")).to_be_visible()
