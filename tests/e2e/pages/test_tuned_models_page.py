"""A tuned model is uploaded, and what is none is refused."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect
from support.browser import Behind
from support.pictures import picture


def test_weights_are_uploaded_and_used(page: Page, repository: Path, behind: Behind) -> None:
    page.goto("/account")
    models = page.get_by_role("region", name="Tuned models")
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
    with page.expect_response("**/v1/gen-3-image-klein-finetuned") as answered:
        page.get_by_role("button", name="Make it").click()
    assert answered.value.ok, answered.value.text()


def test_what_is_no_model_is_refused(page: Page) -> None:
    page.goto("/account")
    models = page.get_by_role("region", name="Tuned models")
    file = {"name": "notes.safetensors", "mimeType": "application/octet-stream", "buffer": b"nothing of the kind"}
    models.get_by_label("Weights").set_input_files([file])  # pyright: ignore[reportArgumentType]
    models.get_by_label("Name", exact=True).fill("notes")
    models.get_by_role("button", name="Upload").click()
    expect(models.get_by_role("status").filter(has_text="Refused")).to_be_visible()
