"""The account page: keys, members, usage, limits, licences and tuned models."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

from playwright.sync_api import Browser, Page, expect
from support.browser import DESK, EXAMPLE, NARROW, WIDE, Behind, file_payload, submit_form, submit_prompt
from support.http_service import Service
from support.images import image_file

from serve_app.tasks.task import Status


def test_key_is_shown_once_and_can_be_revoked(page: Page) -> None:
    page.goto("/account")
    keys = page.get_by_role("region", name="Keys")
    keys.get_by_label("Name of the key").fill("laptop")
    keys.get_by_label("Valid for").select_option("30 days")
    keys.get_by_role("button", name="Make a key").click()
    secret = keys.locator(".secret").inner_text()
    expect(keys.get_by_role("row", name="laptop")).to_contain_text(secret[:10])
    month = page.evaluate("new Date(Date.now() + 30 * 864e5).toLocaleDateString()")
    page.reload()
    row = keys.get_by_role("row", name="laptop")
    expect(row).to_contain_text(month)
    expect(keys).not_to_contain_text(secret)
    keys.get_by_label("Name of the key").fill("phone")
    keys.get_by_role("button", name="Make a key").click()
    expect(keys.locator(".secret")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Revoke").click()
    expect(row).to_have_count(0)
    expect(keys.locator(".secret")).to_have_count(0)


def test_invited_member_joins_within_the_role(page: Page, browser: Browser, service: Service) -> None:
    page.goto("/account")
    keys = page.get_by_role("region", name="Keys")
    keys.get_by_label("Name of the key").fill("for a viewer")
    keys.get_by_label("Role").select_option("viewer")
    keys.get_by_role("button", name="Make a key").click()
    expect(keys.get_by_role("row", name="for a viewer")).to_be_visible()
    members = page.get_by_role("region", name="Members")
    members.get_by_role("combobox", name="Role").first.select_option("developer")
    members.get_by_role("button", name="Invite someone").click()
    link = members.locator(".secret").inner_text()

    context = browser.new_context(base_url=service.base_url, viewport=NARROW)
    member = context.new_page()
    member.goto(link)
    expect(member.get_by_text(re.compile("invites you to default as developer"))).to_be_visible()
    member.get_by_label("Your name").fill("ada@example.com")
    member.get_by_label(re.compile("A password")).fill("correct horse battery")
    member.get_by_role("button", name="Join").click()
    expect(member.get_by_role("button", name="Sign out")).to_be_visible()
    member.get_by_role("button", name=EXAMPLE).click()
    expect(member.get_by_role("article")).to_be_visible()
    expect(member.get_by_role("link", name="Fleet")).to_have_count(0)
    member.get_by_role("button", name="Sign out").click()
    member.get_by_label("Name").fill("ada@example.com")
    member.get_by_label("Password").fill("wrong")
    member.get_by_role("button", name="Sign in", exact=True).click()
    expect(member.get_by_role("alert")).to_contain_text("The name or the password is wrong")
    member.get_by_label("Password").fill("correct horse battery")
    member.get_by_role("button", name="Sign in", exact=True).click()
    expect(member.get_by_role("button", name="Generate")).to_be_visible()
    member.goto("/account")
    key = member.get_by_role("row", name="for a viewer")
    expect(key).to_be_visible()
    expect(key.get_by_role("button")).to_have_count(0)
    member.get_by_label("Current password").fill("correct horse battery")
    member.get_by_label(re.compile("New password")).fill("another horse battery")
    member.get_by_role("button", name="Change password").click()
    expect(member.get_by_text("All other windows are signed out")).to_be_visible()
    context.close()
    page.reload()
    expect(members.get_by_role("row", name="ada@example.com")).to_be_visible()


def test_usage_is_shown_and_a_limit_is_enforced(page: Page, behind: Behind) -> None:
    task_id = submit_prompt(page, "a red star that is paid for")
    behind(lambda worker: worker.deliver(task_id, image_file(form="JPEG")))
    page.goto("/account")
    used = page.get_by_role("region", name="Usage this month")
    today = page.evaluate("new Date().toLocaleDateString('en', {month: 'short', day: 'numeric', timeZone: 'UTC'})")
    expect(used.get_by_text(re.compile(rf"Most on {today}: [0-9.]+ credits"))).to_be_visible()
    bars = used.get_by_role("img", name="Credits by day").locator("div")
    expect(bars.last).to_have_attribute("title", re.compile(today))
    assert bars.count() == page.evaluate("new Date().getUTCDate()")
    expect(used.get_by_role("row", name="gen-3-image-klein")).to_be_visible()
    projects = page.get_by_role("region", name="Projects and limits")
    day = projects.get_by_label("Limit of a day, credits").first
    page.set_viewport_size(NARROW)
    day.fill("-5")
    day.press("Enter")
    expect(page.get_by_text("Not saved: a limit is a number, 0 or more.")).to_be_in_viewport()
    expect(day).to_be_in_viewport(ratio=1)
    page.reload()
    expect(day).to_have_value("")
    page.set_viewport_size(WIDE)
    day.fill("0.5")
    projects.get_by_role("button", name="Save limits").first.click()
    expect(projects.get_by_text("Saved.")).to_be_in_viewport(ratio=1)
    expect(projects.get_by_label("Spent of the limit of a day")).to_be_visible()
    page.goto("/")
    page.locator("textarea").fill("a red star")
    page.get_by_role("button", name="Generate").click()
    expect(page.get_by_role("alert").filter(has_text="limit")).to_be_visible()
    page.goto("/account")
    day.fill("")
    day.press("Enter")
    expect(projects.get_by_label("Spent of the limit of a day")).to_have_count(0)


def test_ledger_links_each_charge_to_its_task(page: Page, behind: Behind) -> None:
    charged, refused = submit_prompt(page, "a red star"), submit_prompt(page, "a blue star")
    behind(lambda worker: worker.deliver(charged, image_file(form="JPEG")))
    behind(lambda worker: worker.end(refused, Status.REQUEST_MODERATED))
    page.set_viewport_size(DESK)
    page.goto("/account")
    page.get_by_text("Ledger").click()
    ledger = page.get_by_role("region", name="Credits").get_by_role("row")
    row = ledger.filter(has_text=charged[:8])
    expect(row).to_have_count(1)
    expect(row).to_be_in_viewport(ratio=1)
    expect(row).to_contain_text(datetime.now().strftime("%b %-d"))
    expect(row).to_contain_text("Charged · gen-3-image-klein")
    expect(row.get_by_role("cell", name=re.compile(r"^.0\.9$"))).to_be_visible()
    expect(ledger.filter(has_text=refused[:8])).to_contain_text("Not charged")
    row.get_by_role("link").click()
    expect(page.get_by_role("dialog")).to_contain_text("a red star")


def test_licence_is_shown_with_its_usage(page: Page) -> None:
    page.goto("/account")
    expect(page.get_by_role("region", name="Keys")).to_be_visible()
    assert page.get_by_role("region", name="Licences").count() == 0
    same = {"sec-fetch-site": "same-origin"}
    assert page.request.put("/v1/admin/licences/flux-1-dev", headers=same).status == 204
    response = page.request.post(
        "/v1/licenses/models/flux-1-dev/usage", data={"number_of_generations": 12}, headers=same
    )
    assert response.ok, response.text()
    page.reload()
    expect(page.get_by_role("region", name="Licences").get_by_role("row", name="flux-1-dev")).to_contain_text("12")


def test_valid_tuned_model_is_uploaded_and_used(page: Page, repository: Path, behind: Behind) -> None:
    page.goto("/account")
    models = page.get_by_role("region", name="Tuned models")
    models.get_by_label("Weights").set_input_files([file_payload("notes.safetensors", b"nothing of the kind")])
    models.get_by_label("Name", exact=True).fill("notes")
    models.get_by_role("button", name="Upload").click()
    expect(models.get_by_role("status").filter(has_text="Refused")).to_be_visible()
    models.get_by_label("Weights").set_input_files(repository / "deployments/bundled/adapters/outlined.safetensors")
    models.get_by_label("Name", exact=True).fill("outlined")
    models.get_by_role("button", name="Upload").click()
    expect(models.get_by_role("row", name="outlined")).to_be_visible(timeout=60_000)
    finetune_id = models.get_by_role("row", name="outlined").locator("code").inner_text()
    models.get_by_role("button", name="Samples").click()
    samples = models.get_by_role("group", name="Samples")
    expect(samples.get_by_role("progressbar")).to_have_count(3)
    expect(models.get_by_role("button", name="Samples")).to_be_enabled()  # all three are accepted
    tasks = page.request.get("/v1/tasks?limit=3&endpoint=gen-3-image-klein-finetuned").json()["tasks"]
    for task in tasks:
        behind(lambda worker, task_id=task["id"]: worker.deliver(task_id, image_file(form="JPEG")))
    expect(samples.get_by_role("img")).to_have_count(3)
    models.get_by_role("link", name="Try it").click()
    expect(page.locator("[data-name=finetune_id] select")).to_have_value(finetune_id)
    page.locator("textarea").fill("a red star")
    assert submit_form(page, "gen-3-image-klein-finetuned").body["finetune_id"] == finetune_id
