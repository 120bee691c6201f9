"""The playground: forms, errors, tasks and results."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Request, expect
from support.browser import DESK, EXAMPLE, NARROW, Behind, around, drag, file_payload, submit_form, submit_prompt
from support.images import image_file

from serve_app.tasks.task import Status

_LOADED = """() => performance.getEntriesByType("navigation")
  .concat(performance.getEntriesByType("resource"))
  .map((entry) => [entry.name, entry.transferSize])"""

VIEWER = {"role": "viewer", "permissions": ["read tasks", "read credits", "read accounts"]}


def list_task_ids(page: Page) -> list[str]:
    """Returns the ids of tasks, the newest first."""
    return [task["id"] for task in page.request.get("/v1/tasks").json()["tasks"]]


def test_first_page_is_small_and_self_contained(page: Page) -> None:
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.goto("/")
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    loaded: list[tuple[str, int]] = page.evaluate(_LOADED)
    assert any(name.endswith("/openapi.json") for name, _ in loaded)
    assert sum(size for _, size in loaded) < 150 * 1024, loaded
    origin = page.evaluate("location.origin")
    assert [url for url in urls if not url.startswith(origin)] == []


def test_phone_shows_the_task_and_the_documentation(page: Page) -> None:
    page.set_viewport_size(NARROW)
    page.goto("/")
    expect(page).to_have_title("Playground · gen-serve")
    page.locator("textarea").fill("a red star on a phone")
    submit_form(page)
    expect(page.get_by_role("article").get_by_text("a red star on a phone")).to_be_in_viewport(ratio=1)
    page.goto("/")
    link = page.get_by_role("navigation").get_by_role("link", name="Docs")
    expect(link).to_be_in_viewport(ratio=1)
    link.click()
    expect(page.get_by_role("heading", name="Quickstart")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    page.get_by_text("Build", exact=True).click()
    page.get_by_role("navigation", name="Guide").get_by_role("link", name="Webhooks").click()
    expect(page.get_by_role("heading", name="Webhooks", exact=True)).to_be_in_viewport()
    page.get_by_role("link", name="Interactive API reference").click()
    expect(page).to_have_url(re.compile("/docs$"))


def test_first_visit_makes_an_image_by_one_click(page: Page, behind: Behind) -> None:
    page.goto("/")
    page.get_by_role("button", name=EXAMPLE).click()
    card = page.get_by_role("article").first
    expect(card).to_be_visible()
    expect(card.get_by_text("in the queue")).to_be_visible()
    task_id = list_task_ids(page)[0]
    behind(lambda worker: worker.advance(task_id, Status.GENERATING, progress=0.5))
    expect(card.get_by_role("progressbar")).to_have_js_property("value", 0.5)
    behind(lambda worker: worker.deliver(task_id, image_file(form="JPEG")))
    expect(card.get_by_role("link", name="Download")).to_be_visible()
    expect(card.get_by_role("img")).to_have_js_property("complete", True)
    expect(card.get_by_text("done")).to_be_visible()
    expect(card.get_by_text("Kept until")).to_be_visible()

    # An edit long after fetches a new link.
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.clock.set_fixed_time("2100-01-01T00:00:00Z")
    card.get_by_role("button", name="Edit this").click()
    expect(page.locator("[data-name=images] img")).to_be_visible()
    expect(page.locator("textarea")).to_have_value("")
    assert any("/v1/get_result" in url for url in urls)
    with page.expect_download() as download:
        card.get_by_role("link", name="Download").click()
    assert download.value.failure() is None


def test_errors_appear_once_beside_their_field(page: Page) -> None:
    page.set_viewport_size(DESK)
    page.goto("/")
    page.get_by_role("button", name="Generate").click()
    prompt, error = page.locator("textarea"), page.get_by_text("Prompt is required.")
    expect(prompt).to_have_attribute("aria-invalid", "true")
    expect(prompt).to_be_focused()
    expect(error).to_be_in_viewport()
    prompt.fill("a red star")
    expect(error).to_have_count(0)

    file, error = page.locator("[data-name=images] input"), page.get_by_text("Send one of: jpeg, png, webp.")
    file.set_input_files({"name": "notes.txt", "mimeType": "text/plain", "buffer": b"nothing"})
    expect(error).to_have_text("notes.txt can't be used. Send one of: jpeg, png, webp.")
    expect(error).to_be_in_viewport(ratio=1)
    file.set_input_files(file_payload("a.png", image_file(64, 64)))
    expect(error).to_have_count(0)

    page.route("**/v1/gen-3-image-klein", lambda route: route.abort())
    page.get_by_role("button", name="Generate").click()
    expect(page.get_by_text("The service can't be reached")).to_be_in_viewport(ratio=1)

    page.goto("/?endpoint=gen-pro-1.0-fill")
    page.locator("[data-name=image] input").set_input_files(file_payload("a.png", image_file(64, 64)))
    page.get_by_role("button", name="Generate").click()
    error = page.get_by_text("no transparent parts")
    expect(error).to_be_in_viewport()
    expect(error).to_have_count(1)


def test_form_explains_its_fields_and_endpoints(page: Page) -> None:
    page.goto("/")
    prompt = page.locator("[data-name=prompt]")
    expect(prompt.get_by_text("Content of the image")).to_be_hidden()
    prompt.get_by_label("Help").click()
    expect(prompt.get_by_text("Content of the image")).to_be_in_viewport()
    page.get_by_text("Advanced", exact=True).click()
    expect(page.locator("[data-name=safety_tolerance] input")).to_be_visible()
    expect(page.locator("[data-name=safety_tolerance] input[type=range]")).to_have_count(0)
    expect(page.locator("[data-name=steps] input[type=range]")).to_have_value("16")

    expect(page.locator("textarea")).to_have_attribute("placeholder", re.compile("^a large pink heart"))
    choose = page.get_by_label("Endpoint")
    for group, name in (
        ("Edit", "Kontext Pro"),
        ("Inpaint", "Erase v1"),
        ("Extend", "Outpainting v1"),
        ("Video", "3 Video"),
        ("Tools", "Try-on v2"),
        ("Generate", "3 Image Klein"),
    ):
        options = choose.locator(f"optgroup[label={group}] option")
        expect(options.filter(has_text=re.compile(f"^{name}$"))).to_have_count(1)
    for name in choose.locator("option").all_inner_texts():
        choose.select_option(name)
        expect(page.locator(".fields .field").first).to_be_visible()
    choose.select_option("gen-3-video")
    expect(page.locator("textarea")).to_have_attribute("placeholder", re.compile("^a red circle moves"))
    mode, other = (page.get_by_role("button", name=name) for name in ("Extend a video", "Text to video"))
    mode.click()
    expect(mode).to_have_attribute("aria-pressed", "true")
    colour = "each => getComputedStyle(each).color"
    assert mode.evaluate(colour) != other.evaluate(colour)


def test_demo_model_names_unknown_words_before_submission(page: Page) -> None:
    page.set_viewport_size(DESK)
    page.goto("/")
    expect(page.get_by_text("Demo model: it draws coloured shapes")).to_be_in_viewport(ratio=1)
    page.locator("textarea").fill("a lighthouse on a cliff at dawn, oil painting")
    expect(page.get_by_text("It does not know: lighthouse, cliff")).to_be_in_viewport(ratio=1)
    page.locator("textarea").fill("a red star")
    expect(page.get_by_text("It does not know")).to_have_count(0)
    page.get_by_label("Endpoint").select_option("gen-2-max")
    expect(page.get_by_text("Demo model")).to_be_hidden()


def test_price_and_number_of_results_are_shown(page: Page) -> None:
    page.goto("/")
    price = page.locator("#form").get_by_text("credits")
    page.locator("textarea").fill("a red star, three times")
    expect(price).to_have_text("0.9 credits")
    resolution = page.get_by_label("Resolution")
    usual = resolution.input_value()
    resolution.select_option("4k")
    expect(price).not_to_have_text("0.9 credits")
    resolution.select_option(usual)
    page.locator(".seed input").fill("7")
    page.get_by_label("How many").fill("3")
    expect(price).to_have_text("2.7 credits")
    bodies: list[Any] = []

    def record(request: Request) -> None:
        if request.url.endswith("/v1/gen-3-image-klein"):
            bodies.append(request.post_data_json)

    page.on("request", record)
    page.get_by_role("button", name="Generate").click()
    expect(page.get_by_role("article")).to_have_count(3)
    assert [body["seed"] for body in bodies] == [7, 8, 9]


def test_form_and_tasks_survive_a_change_and_a_reload(page: Page, behind: Behind) -> None:
    page.set_viewport_size(DESK)
    page.goto("/")
    page.locator("textarea").fill("a red star that stays")
    page.locator("[data-name=images] input").set_input_files(file_payload("a.png", image_file(64, 64)))
    expect(page.get_by_role("button", name="Take the image away")).to_be_visible()
    page.get_by_label("Endpoint").select_option("gen-kontext-pro")
    expect(page.locator("textarea")).to_have_value("a red star that stays")
    expect(page.locator("[data-name=input_image] img")).to_be_visible()
    task_id = submit_form(page, "gen-kontext-pro").id
    page.locator("textarea").fill("another star")
    page.get_by_text("Code", exact=True).click()
    expect(page.locator("pre").first).to_contain_text("another star")
    page.reload()
    expect(page.get_by_label("Endpoint")).to_have_value("gen-kontext-pro")
    expect(page.locator("textarea")).to_have_value("another star")
    expect(page.locator("[data-name=input_image] img")).to_be_visible()
    card = page.get_by_role("article")
    expect(card.get_by_text("a red star that stays")).to_be_in_viewport()
    behind(lambda worker: worker.deliver(task_id, image_file(form="JPEG")))
    expect(card.get_by_text("Done")).to_be_visible()
    page.get_by_label("Endpoint").select_option("gen-3-image-klein")
    expect(page.get_by_role("group", name="Examples")).to_be_hidden()


def test_result_is_enlarged_and_its_seed_reused(page: Page, behind: Behind) -> None:
    task_id = submit_prompt(page, "a red star to enlarge")
    behind(lambda worker: worker.deliver(task_id, image_file(form="JPEG")))
    card = page.get_by_role("article").first
    card.get_by_title("Enlarge").click()
    enlarged = page.get_by_role("dialog", name="Enlarged")
    expect(enlarged.get_by_role("img")).to_be_in_viewport(ratio=1)
    page.keyboard.press("Escape")
    expect(enlarged).to_have_count(0)
    seed = behind(lambda worker: worker.job(task_id)["seed"])
    card.get_by_role("button", name=f"Seed {seed}").click()
    assert submit_form(page).body["seed"] == seed


def test_viewer_reads_why_it_cannot_generate(page: Page) -> None:
    page.route("**/v1/session", lambda route: route.fulfill(json=route.fetch().json() | VIEWER))
    page.goto("/")
    reason = page.get_by_text("Your role, viewer, can't generate. Ask an administrator for another role.")
    expect(reason).to_be_in_viewport()
    expect(page.get_by_role("button", name="Generate")).to_be_disabled()
    expect(page.get_by_role("group", name="Examples")).to_be_hidden()


def test_result_of_the_same_shape_is_compared(page: Page, behind: Behind) -> None:
    page.goto("/")
    page.locator("textarea").fill("a red star")
    page.locator("[data-name=images] input").set_input_files(file_payload("a.png", image_file(96, 64)))
    expect(page.get_by_role("button", name="Take the image away")).to_be_visible()
    task_id = submit_form(page).id
    card = page.get_by_role("article").first
    behind(lambda worker: worker.deliver(task_id, image_file(192, 128, form="JPEG")))
    slider = card.get_by_label("From the result to the image before")
    box = around(slider)
    middle = box["y"] + box["height"] / 2
    drag(page, (box["x"] + box["width"] / 2, middle), (box["x"] + box["width"] / 4, middle))
    assert int(slider.input_value()) == pytest.approx(25, abs=3)
    task_id = submit_form(page).id
    behind(lambda worker: worker.deliver(task_id, image_file(192, 64, form="JPEG")))
    card = page.get_by_role("article").first
    expect(card.get_by_role("img")).to_have_js_property("naturalWidth", 192)
    expect(card.get_by_label("From the result to the image before")).to_have_count(0)


def test_video_shows_its_cancellation_and_its_cost(page: Page, behind: Behind) -> None:
    page.goto("/?endpoint=gen-3-video")
    page.locator("textarea").fill("a red circle moves to the right")
    task_id = submit_form(page, "gen-3-video").id
    behind(lambda worker: worker.advance(task_id, Status.GENERATING, progress=0.3))
    card = page.get_by_role("article").first
    expect(card.get_by_text("Generating", exact=False)).to_be_visible()
    expect(card).not_to_contain_text("… credits")
    card.get_by_role("button", name="Cancel").click()
    expect(card.get_by_text("Cancelled", exact=True)).to_be_visible()
    expect(card.get_by_text("Failed")).to_have_count(0)
    expect(card).to_contain_text("not charged")
    assert page.request.get(f"/v1/get_result?id={task_id}").json()["status"] == "Error"

    finished = submit_form(page, "gen-3-video").id
    expect(page.get_by_role("article")).to_have_count(2)
    behind(lambda worker: worker.deliver_video(finished, b"no video"))
    expect(card.get_by_role("link", name="Download")).to_be_visible()
    expect(card).not_to_contain_text("null")
    expect(card.get_by_text(re.compile(r"gen-3-video · [0-9.]+ credits"))).to_be_visible()


def test_windows_with_many_tasks_share_connections(page: Page, behind: Behind) -> None:
    """A browser opens six connections, and one window holds the stream of events for all."""
    ids: list[str] = []
    windows = [page, page.context.new_page(), page.context.new_page()]
    for window, tasks in zip(windows, (7, 1, 1), strict=True):
        window.goto("/")
        for count in range(1, tasks + 1):
            window.locator("textarea").fill(f"a red star {count}")
            ids.append(submit_form(window).id)
            expect(window.get_by_role("article")).to_have_count(count)
    assert page.evaluate("fetch('/v1/session').then((answer) => answer.ok)")
    another = page.context.new_page()
    another.goto("/gallery")
    expect(another.get_by_role("listitem").filter(has_text="a red star 7").first).to_be_visible()
    behind(lambda worker: worker.deliver(ids[0], image_file(form="JPEG")))
    expect(page.get_by_role("article").get_by_text("Done")).to_be_visible()
    for window, task_id in zip(windows, (ids[6], *ids[7:]), strict=True):
        behind(lambda worker, task_id=task_id: worker.end(task_id, Status.ERROR))
        expect(window.get_by_role("article").get_by_text("failed")).to_have_count(1)


def test_texts_are_sent_unchanged_and_once(page: Page) -> None:
    page.goto("/")
    page.locator("textarea").fill("a true story of null")
    page.get_by_text("Code").click()
    expect(page.locator("pre").nth(1)).to_contain_text('prompt="a true story of null"')
    page.get_by_text("Advanced", exact=True).click()
    page.locator("[data-name=user] input").fill("42")
    assert submit_form(page).body["user"] == "42"
    before = list_task_ids(page)
    page.evaluate("""() => {
        const area = document.querySelector("textarea");
        for (const repeat of [false, true, true, false])
            area.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", ctrlKey: true, repeat}));
    }""")
    expect(page.get_by_role("article")).to_have_count(2)
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    assert len(set(list_task_ids(page)) - set(before)) == 1
