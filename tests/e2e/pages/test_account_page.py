"""Keys, members, limits and tuned models without a manual; a new member comes by a link."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, Page, expect
from support.browser import EXAMPLE, NARROW, Behind, asked_for, file_of, sent_by
from support.http_service import Service
from support.pictures import picture


def test_a_key_is_shown_once(page: Page) -> None:
    page.goto("/account")
    keys = page.get_by_role("region", name="Keys")
    keys.get_by_label("Name of the key").fill("laptop")
    keys.get_by_role("button", name="Make a key").click()
    secret = keys.locator(".secret").inner_text()
    expect(keys.get_by_role("row", name="laptop")).to_contain_text(secret[:10])
    page.reload()
    expect(keys.get_by_role("row", name="laptop")).to_be_visible()
    expect(keys).not_to_contain_text(secret)


def test_someone_who_is_invited_makes_a_picture(page: Page, browser: Browser, service: Service) -> None:
    page.goto("/account")
    members = page.get_by_role("region", name="Members")
    members.get_by_role("combobox", name="Role").first.select_option("developer")
    members.get_by_role("button", name="Invite someone").click()
    link = members.locator(".secret").inner_text()

    # Another browser, in which nobody is signed in: here that would need nothing, so it begins at the link.
    context = browser.new_context(base_url=service.base_url, viewport=NARROW)
    theirs = context.new_page()
    theirs.goto(link)
    expect(theirs.get_by_text(re.compile("invites you to default as developer"))).to_be_visible()
    theirs.get_by_label("Your name").fill("ada@example.com")
    theirs.get_by_label(re.compile("A password")).fill("correct horse battery")
    theirs.get_by_role("button", name="Join").click()
    expect(theirs.get_by_role("button", name="Sign out")).to_be_visible()
    theirs.get_by_role("button", name=EXAMPLE).click()
    expect(theirs.get_by_role("article")).to_be_visible()
    # What the role may not do is not offered.
    expect(theirs.get_by_role("link", name="Fleet")).to_have_count(0)
    theirs.get_by_role("button", name="Sign out").click()
    theirs.get_by_label("Name").fill("ada@example.com")
    theirs.get_by_label("Password").fill("wrong")
    theirs.get_by_role("button", name="Sign in", exact=True).click()
    expect(theirs.get_by_role("alert")).to_contain_text("No one of that name and password")
    theirs.get_by_label("Password").fill("correct horse battery")
    theirs.get_by_role("button", name="Sign in", exact=True).click()
    expect(theirs.get_by_role("button", name="Generate")).to_be_visible()
    theirs.goto("/account")
    theirs.get_by_label("The one so far").fill("correct horse battery")
    theirs.get_by_label(re.compile("The new one")).fill("another horse battery")
    theirs.get_by_role("button", name="Change it").click()
    expect(theirs.get_by_text("All other windows are signed out")).to_be_visible()
    context.close()
    page.reload()
    expect(members.get_by_role("row", name="ada@example.com")).to_be_visible()


def test_use_is_shown_and_a_limit_is_set_and_met(page: Page, behind: Behind) -> None:
    task_id = asked_for(page, "a red star that is paid for")
    behind(lambda worker: worker.deliver(task_id, picture(form="JPEG")))
    page.goto("/account")
    used = page.get_by_role("region", name="Usage this month")
    expect(used.get_by_role("img", name="Credits by day")).to_be_visible()
    expect(used.get_by_role("row", name="gen-3-image-klein")).to_be_visible()
    projects = page.get_by_role("region", name="Projects and limits")
    day = projects.get_by_label("Limit of a day, credits").first
    day.fill("0.5")
    day.blur()
    expect(projects.get_by_label("Spent of the limit of a day")).to_be_visible()
    page.goto("/")
    page.locator("textarea").fill("a red star")
    page.get_by_role("button", name="Generate").click()
    expect(page.get_by_role("alert").filter(has_text="limit")).to_be_visible()
    page.goto("/account")
    day.fill("")
    day.blur()
    expect(projects.get_by_label("Spent of the limit of a day")).to_have_count(0)


def test_licences_are_shown_with_what_was_reported(page: Page) -> None:
    page.goto("/account")
    expect(page.get_by_role("region", name="Keys")).to_be_visible()
    assert page.get_by_role("region", name="Licences").count() == 0
    same = {"sec-fetch-site": "same-origin"}
    assert page.request.put("/v1/admin/licences/flux-1-dev", headers=same).status == 204
    told = page.request.post("/v1/licenses/models/flux-1-dev/usage", data={"number_of_generations": 12}, headers=same)
    assert told.ok, told.text()
    page.reload()
    expect(page.get_by_role("region", name="Licences").get_by_role("row", name="flux-1-dev")).to_contain_text("12")


def test_a_tuned_model_is_uploaded_and_used_and_what_is_none_is_refused(
    page: Page, repository: Path, behind: Behind
) -> None:
    page.goto("/account")
    models = page.get_by_role("region", name="Tuned models")
    models.get_by_label("Weights").set_input_files([file_of("notes.safetensors", b"nothing of the kind")])
    models.get_by_label("Name", exact=True).fill("notes")
    models.get_by_role("button", name="Upload").click()
    expect(models.get_by_role("status").filter(has_text="Refused")).to_be_visible()
    models.get_by_label("Weights").set_input_files(repository / "deployments/bundled/adapters/outlined.safetensors")
    models.get_by_label("Name", exact=True).fill("outlined")
    models.get_by_role("button", name="Upload").click()
    expect(models.get_by_role("row", name="outlined")).to_be_visible(timeout=60_000)
    finetune_id = models.get_by_role("row", name="outlined").locator("code").inner_text()
    models.get_by_role("button", name="Samples").click()
    drawn = models.get_by_role("group", name="Samples")
    expect(drawn.get_by_role("progressbar")).to_have_count(3)
    expect(models.get_by_role("button", name="Samples")).to_be_enabled()  # all three are accepted
    tasks = page.request.get("/v1/tasks?limit=3&endpoint=gen-3-image-klein-finetuned").json()["tasks"]
    for task in tasks:
        behind(lambda worker, task_id=task["id"]: worker.deliver(task_id, picture(form="JPEG")))
    expect(drawn.get_by_role("img")).to_have_count(3)
    models.get_by_role("link", name="Try it").click()
    expect(page.locator("[data-name=finetune_id] input")).to_have_value(finetune_id)
    page.locator("textarea").fill("a red star")
    assert sent_by(page, "gen-3-image-klein-finetuned").body["finetune_id"] == finetune_id
