"""A picture by one click, and what is beside it."""

from __future__ import annotations

from playwright.sync_api import Page, expect
from support.browser import EXAMPLE, Behind, sent_by
from support.pictures import picture

from serve_app.tasks.task import Status

_LOADED = """() => performance.getEntriesByType("navigation")
  .concat(performance.getEntriesByType("resource"))
  .map((entry) => [entry.name, entry.transferSize])"""


def ids_of_tasks(page: Page) -> list[str]:
    """The newest first."""
    return [task["id"] for task in page.request.get("/v1/tasks").json()["tasks"]]


def test_the_first_page_is_small_and_nothing_comes_from_elsewhere(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/")
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    loaded: list[tuple[str, int]] = page.evaluate(_LOADED)
    assert any(name.endswith("/openapi.json") for name, _ in loaded)
    assert sum(size for _, size in loaded) < 200 * 1024, loaded
    origin = page.evaluate("location.origin")
    assert [url for url in asked if not url.startswith(origin)] == []


def test_the_first_visit_makes_a_picture_by_one_click(page: Page, behind: Behind) -> None:
    page.goto("/")
    page.get_by_role("button", name=EXAMPLE).click()
    card = page.get_by_role("article").first
    expect(card).to_be_visible()
    task_id = ids_of_tasks(page)[0]
    behind(lambda worker: worker.advance(task_id, Status.GENERATING, progress=0.5))
    expect(card.get_by_role("progressbar")).to_have_js_property("value", 0.5)
    behind(lambda worker: worker.deliver(task_id, picture(form="JPEG")))
    expect(card.get_by_role("link", name="Download")).to_be_visible()
    expect(card.get_by_role("img")).to_have_js_property("complete", True)
    expect(card.get_by_text("done")).to_be_visible()

    # Long after, it is worked on by a link of then.
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.set_fixed_time("2100-01-01T00:00:00Z")
    card.get_by_role("button", name="Edit this").click()
    expect(page.locator("[data-name=images] img")).to_be_visible()
    assert any("/v1/get_result" in url for url in asked)
    with page.expect_download() as download:
        card.get_by_role("link", name="Download").click()
    assert download.value.failure() is None


def test_a_video_on_its_way_is_cancelled_and_says_so(page: Page, behind: Behind) -> None:
    page.goto("/?endpoint=gen-3-video")
    page.locator("textarea").fill("a red circle moves to the right")
    task_id = sent_by(page, "gen-3-video").id
    behind(lambda worker: worker.advance(task_id, Status.GENERATING, progress=0.3))
    card = page.get_by_role("article").first
    expect(card.get_by_text("Generating", exact=False)).to_be_visible()
    card.get_by_role("button", name="Cancel").click()
    expect(card.get_by_text("Failed")).to_be_visible()
    assert page.request.get(f"/v1/get_result?id={task_id}").json()["status"] == "Error"


def test_what_is_wrong_is_said_beside_its_field(page: Page) -> None:
    page.goto("/")
    page.get_by_role("button", name="Generate").click()
    prompt = page.locator("textarea")
    expect(prompt).to_have_attribute("aria-invalid", "true")
    expect(prompt).to_be_focused()


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
        ids.append(sent_by(page).id)
        expect(page.get_by_role("article")).to_have_count(count)
    assert page.evaluate("fetch('/v1/session').then((answer) => answer.ok)")
    for task_id in ids[6:]:
        behind(lambda worker, task_id=task_id: worker.end(task_id, Status.ERROR))
    expect(page.get_by_role("article").get_by_text("failed")).to_have_count(2)


def test_one_press_makes_one_task(page: Page) -> None:
    page.goto("/")
    page.locator("textarea").fill("a red star")
    before = ids_of_tasks(page)
    page.evaluate("""() => {
        const area = document.querySelector("textarea");
        for (const repeat of [false, true, true, false])
            area.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", ctrlKey: true, repeat}));
    }""")
    expect(page.get_by_role("article")).to_have_count(1)
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    assert len(set(ids_of_tasks(page)) - set(before)) == 1


def test_texts_are_sent_and_shown_as_they_are(page: Page) -> None:
    page.goto("/")
    page.locator("textarea").fill("a true story of null")
    page.get_by_text("Code").click()
    expect(page.locator("pre").nth(1)).to_contain_text('"prompt": "a true story of null"')
    page.get_by_text("Advanced", exact=True).click()
    page.locator("[data-name=user] input").fill("42")
    assert sent_by(page).body["user"] == "42"
