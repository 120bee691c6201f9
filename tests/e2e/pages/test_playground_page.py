"""An image by one click, and what is beside it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from support.browser import DESK, EXAMPLE, NARROW, Behind, around, drag, file_payload, submit_form, submit_prompt
from support.images import image_file

from serve_app.tasks.task import Status

_LOADED = """() => performance.getEntriesByType("navigation")
  .concat(performance.getEntriesByType("resource"))
  .map((entry) => [entry.name, entry.transferSize])"""


VIEWER = {"role": "viewer", "permissions": ["read tasks", "read credits", "read accounts"]}


def list_task_ids(page: Page) -> list[str]:
    """The newest first."""
    return [task["id"] for task in page.request.get("/v1/tasks").json()["tasks"]]


def test_the_first_page_is_small_and_nothing_comes_from_elsewhere(page: Page) -> None:
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.goto("/")
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    loaded: list[tuple[str, int]] = page.evaluate(_LOADED)
    assert any(name.endswith("/openapi.json") for name, _ in loaded)
    assert sum(size for _, size in loaded) < 150 * 1024, loaded
    origin = page.evaluate("location.origin")
    assert [url for url in urls if not url.startswith(origin)] == []


def test_the_documentation_is_one_click_away(page: Page) -> None:
    page.set_viewport_size(NARROW)
    page.goto("/")
    link = page.get_by_role("navigation").get_by_role("link", name="Docs")
    expect(link).to_be_in_viewport(ratio=1)
    expect(page).to_have_title("Playground · gen-serve")
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

    # Long after, it is worked on by a link of then.
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


def test_a_video_on_its_way_is_cancelled_and_says_so(page: Page, behind: Behind) -> None:
    page.goto("/?endpoint=gen-3-video")
    page.locator("textarea").fill("a red circle moves to the right")
    task_id = submit_form(page, "gen-3-video").id
    behind(lambda worker: worker.advance(task_id, Status.GENERATING, progress=0.3))
    card = page.get_by_role("article").first
    expect(card.get_by_text("Generating", exact=False)).to_be_visible()
    card.get_by_role("button", name="Cancel").click()
    expect(card.get_by_text("Cancelled", exact=True)).to_be_visible()
    expect(card.get_by_text("Failed")).to_have_count(0)
    expect(card).to_contain_text("not charged")
    assert page.request.get(f"/v1/get_result?id={task_id}").json()["status"] == "Error"


def test_what_is_wrong_is_said_beside_its_field(page: Page) -> None:
    page.goto("/")
    page.get_by_role("button", name="Generate").click()
    prompt = page.locator("textarea")
    expect(prompt).to_have_attribute("aria-invalid", "true")
    expect(prompt).to_be_focused()
    wrong = page.get_by_text("Prompt is required.")
    expect(wrong).to_be_in_viewport()
    prompt.fill("a red star")
    expect(wrong).to_have_count(0)


def test_what_a_field_lacks_is_said_once(page: Page) -> None:
    page.set_viewport_size(DESK)
    page.goto("/?endpoint=gen-pro-1.0-fill")
    page.locator("[data-name=image] input").set_input_files(file_payload("a.png", image_file(64, 64)))
    page.get_by_role("button", name="Generate").click()
    wrong = page.get_by_text("no transparent parts")
    expect(wrong).to_be_in_viewport()
    expect(wrong).to_have_count(1)


def test_what_is_wrong_elsewhere_is_said_beside_the_button(page: Page) -> None:
    page.set_viewport_size(DESK)
    page.goto("/")
    page.locator("textarea").fill("a red star")
    page.route("**/v1/gen-3-image-klein", lambda route: route.abort())
    page.get_by_role("button", name="Generate").click()
    expect(page.get_by_text("The service can't be reached")).to_be_in_viewport(ratio=1)


def test_what_was_asked_for_is_seen_on_a_phone(page: Page) -> None:
    page.set_viewport_size(NARROW)
    page.goto("/")
    page.locator("textarea").fill("a red star on a phone")
    submit_form(page)
    expect(page.get_by_role("article").get_by_text("a red star on a phone")).to_be_in_viewport(ratio=1)


def test_a_file_of_another_kind_is_refused_aloud(page: Page) -> None:
    page.goto("/")
    file = page.locator("[data-name=images] input")
    file.set_input_files({"name": "notes.txt", "mimeType": "text/plain", "buffer": b"nothing"})
    wrong = page.get_by_text("notes.txt can't be used. Send one of: jpeg, png, webp.")
    expect(wrong).to_be_in_viewport(ratio=1)
    file.set_input_files(file_payload("a.png", image_file(64, 64)))
    expect(wrong).to_have_count(0)


def test_a_slider_that_stands_for_nothing_is_not_there(page: Page) -> None:
    page.goto("/")
    page.get_by_text("Advanced", exact=True).click()
    expect(page.locator("[data-name=safety_tolerance] input")).to_be_visible()
    expect(page.locator("[data-name=safety_tolerance] input[type=range]")).to_have_count(0)
    expect(page.locator("[data-name=steps] input[type=range]")).to_have_value("16")


def test_the_mode_of_a_video_is_told_from_the_others(page: Page) -> None:
    page.goto("/?endpoint=gen-3-video")
    chosen, other = (page.get_by_role("button", name=name) for name in ("Extend a video", "Text to video"))
    chosen.click()
    expect(chosen).to_have_attribute("aria-pressed", "true")
    colour = "each => getComputedStyle(each).color"
    assert chosen.evaluate(colour) != other.evaluate(colour)


def test_what_is_proposed_can_be_drawn_by_the_bundled_models(page: Page) -> None:
    page.goto("/")
    expect(page.locator("textarea")).to_have_attribute("placeholder", re.compile("^a large pink heart"))
    page.get_by_label("Endpoint").select_option("gen-3-video")
    expect(page.locator("textarea")).to_have_attribute("placeholder", re.compile("^a red circle moves"))


def test_what_a_demo_model_does_not_know_is_said_before_anything_is_sent(page: Page) -> None:
    page.set_viewport_size(DESK)
    page.goto("/")
    expect(page.get_by_text("Demo model: it draws coloured shapes")).to_be_in_viewport(ratio=1)
    page.locator("textarea").fill("a lighthouse on a cliff at dawn, oil painting")
    expect(page.get_by_text("It does not know: lighthouse, cliff")).to_be_in_viewport(ratio=1)
    page.locator("textarea").fill("a red star")
    expect(page.get_by_text("It does not know")).to_have_count(0)
    page.get_by_label("Endpoint").select_option("gen-2-max")
    expect(page.get_by_text("Demo model")).to_be_hidden()


def test_endpoints_are_named_and_grouped_by_what_people_want(page: Page) -> None:
    page.goto("/")
    choose = page.get_by_label("Endpoint")
    for group, name in (("Edit", "Kontext Pro"), ("Inpaint", "Erase v1"), ("Extend", "Outpainting v1"),
                        ("Video", "3 Video"), ("Tools", "Try-on v2"), ("Generate", "3 Image Klein")):  # fmt: skip
        expect(
            choose.locator(f"optgroup[label={group}] option").filter(has_text=re.compile(f"^{name}$"))
        ).to_have_count(1)


def test_several_results_by_one_press(page: Page) -> None:
    page.goto("/")
    page.locator("textarea").fill("a red star, three times")
    page.locator(".seed input").fill("7")
    page.get_by_label("How many").fill("3")
    expect(page.locator("#form").get_by_text("credits")).to_have_text("2.7 credits")
    bodies: list[Any] = []
    page.on("request", lambda request: bodies.append(request.post_data_json)
            if request.url.endswith("/v1/gen-3-image-klein") else None)  # fmt: skip
    page.get_by_role("button", name="Generate").click()
    expect(page.get_by_role("article")).to_have_count(3)
    assert [body["seed"] for body in bodies] == [7, 8, 9]


def test_help_is_there_for_those_who_ask(page: Page) -> None:
    page.goto("/")
    prompt = page.locator("[data-name=prompt]")
    expect(prompt.get_by_text("Content of the image")).to_be_hidden()
    prompt.get_by_label("Help").click()
    expect(prompt.get_by_text("Content of the image")).to_be_in_viewport()


def test_work_stays_as_the_endpoint_changes_and_the_page_is_loaded_again(page: Page, behind: Behind) -> None:
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
    expect(page.locator("pre").first).to_contain_text("another star")  # and what is in the form is kept
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


def test_a_result_is_enlarged_and_its_seed_used_again(page: Page, behind: Behind) -> None:
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


def test_a_role_that_may_not_generate_reads_why(page: Page) -> None:
    page.route("**/v1/session", lambda route: route.fulfill(json=route.fetch().json() | VIEWER))
    page.goto("/")
    expect(
        page.get_by_text("Your role, viewer, can't generate. Ask an administrator for another role.")
    ).to_be_in_viewport()
    expect(page.get_by_role("button", name="Generate")).to_be_disabled()
    expect(page.get_by_role("group", name="Examples")).to_be_hidden()


def test_a_result_of_another_shape_is_shown_alone(page: Page, behind: Behind) -> None:
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


def test_a_card_of_a_video_says_what_it_cost(page: Page, behind: Behind) -> None:
    page.goto("/?endpoint=gen-3-video")
    page.locator("textarea").fill("a red circle moves to the right")
    task_id = submit_form(page, "gen-3-video").id
    card = page.get_by_role("article").first
    expect(card).not_to_contain_text("… credits")
    behind(lambda worker: worker.deliver_video(task_id, b"no video"))
    expect(card.get_by_role("link", name="Download")).to_be_visible()
    expect(card).not_to_contain_text("null")
    expect(card.get_by_text(re.compile(r"gen-3-video · [0-9.]+ credits"))).to_be_visible()


def test_the_price_is_there_before_anything_is_sent(page: Page) -> None:
    page.goto("/")
    page.locator("textarea").fill("a red star")
    expect(page.locator("#form").get_by_text("credits")).to_have_text("0.9 credits")
    page.get_by_label("Resolution").select_option("4k")
    expect(page.locator("#form").get_by_text("credits")).not_to_have_text("0.9 credits")


def test_every_endpoint_has_a_form(page: Page) -> None:
    page.goto("/")
    choose = page.get_by_label("Endpoint")
    expect(choose.locator("option").nth(15)).to_be_attached()
    for name in choose.locator("option").all_inner_texts():
        choose.select_option(name)
        expect(page.locator(".fields .field").first).to_be_visible()


def test_many_tasks_leave_connections_to_everything_else_and_are_told_to_their_end(page: Page, behind: Behind) -> None:
    """A browser opens six of them."""
    page.goto("/")
    ids: list[str] = []
    for count in range(1, 9):
        page.locator("textarea").fill(f"a red star {count}")
        ids.append(submit_form(page).id)
        expect(page.get_by_role("article")).to_have_count(count)
    assert page.evaluate("fetch('/v1/session').then((answer) => answer.ok)")
    for task_id in ids[6:]:
        behind(lambda worker, task_id=task_id: worker.end(task_id, Status.ERROR))
    expect(page.get_by_role("article").get_by_text("failed")).to_have_count(2)


def test_windows_leave_connections_to_one_another(page: Page, behind: Behind) -> None:
    """Of all windows one has the stream of events."""
    ids: list[str] = []
    windows = [page, page.context.new_page(), page.context.new_page()]
    for window in windows:
        window.goto("/")
        for count in range(1, 3):
            window.locator("textarea").fill(f"a red star {count}")
            ids.append(submit_form(window).id)
            expect(window.get_by_role("article")).to_have_count(count)
    another = page.context.new_page()
    another.goto("/gallery")
    expect(another.get_by_role("listitem").filter(has_text="a red star 2").first).to_be_visible()
    behind(lambda worker: worker.deliver(ids[0], image_file(form="JPEG")))
    expect(page.get_by_role("article").get_by_text("Done")).to_be_visible()


def test_one_press_makes_one_task(page: Page) -> None:
    page.goto("/")
    page.locator("textarea").fill("a red star")
    before = list_task_ids(page)
    page.evaluate("""() => {
        const area = document.querySelector("textarea");
        for (const repeat of [false, true, true, false])
            area.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", ctrlKey: true, repeat}));
    }""")
    expect(page.get_by_role("article")).to_have_count(1)
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    assert len(set(list_task_ids(page)) - set(before)) == 1


def test_texts_are_sent_and_shown_as_they_are(page: Page) -> None:
    page.goto("/")
    page.locator("textarea").fill("a true story of null")
    page.get_by_text("Code").click()
    expect(page.locator("pre").nth(1)).to_contain_text('prompt="a true story of null"')
    page.get_by_text("Advanced", exact=True).click()
    page.locator("[data-name=user] input").fill("42")
    assert submit_form(page).body["user"] == "42"
