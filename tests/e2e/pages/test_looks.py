"""Looks of every page: axe finds no serious violation, and no page is wider than its window.

`SCREENSHOTS=docs/pages` writes the images that docs/dashboard.md shows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, Route, expect
from support.browser import NARROW, WIDE, Behind, drag_within, file_payload, looks, submit_prompt
from support.http_service import Service, running
from support.images import encode_image as png_file
from support.images import image_file
from support.worker import IMAGE_ENDPOINT

from serve_app.accounts.roles import Role
from serve_app.api.routes.admin.fleet import predict_capacity
from serve_app.config.settings import AccountSettings, TaskSettings
from serve_app.tasks.task import Status

pytestmark = pytest.mark.slow

IN_DOCS: Final = {
    "playground-wide-light",
    "boxes-narrow-light",
    "outpainting-narrow-light",
    "keyframes-narrow-dark",
    "gallery-wide-light",
    "task-wide-dark",
    "fleet-wide-light",
    "account-wide-light",
}
GRAVE: Final = {"serious", "critical"}
WIDER: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@dataclass(frozen=True)
class Sample:
    """An image of a bundled checkpoint, from the sheet in deployments/bundled/README.md, as two JPEG files."""

    prompt: str
    small: bytes
    large: bytes


@dataclass(frozen=True)
class Studio:
    """A service whose pages show only these tasks."""

    base_url: str
    behind: Behind
    images: list[Sample]


def read_samples(repository: Path) -> Iterator[Sample]:
    prompts = re.findall(r"^\d+\. `(.+)`$", (repository / "deployments/bundled/README.md").read_text(), re.MULTILINE)
    with Image.open(repository / "docs/images/prompts.jpeg") as sheet:
        for number, prompt in enumerate(prompts):
            left, top = number % 4 * 208, number // 4 * 158
            cell = sheet.crop((left, top, left + 200, top + 150))
            large = cell.resize((800, 600), Image.Resampling.LANCZOS)
            yield Sample(prompt, png_file(cell, "JPEG", quality=90), png_file(large, "JPEG", quality=90))


@pytest.fixture(scope="module")
def studio(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    images = list(read_samples(repository))
    tasks, accounts = TaskSettings(lease_s=3600), AccountSettings(local_role=Role.OPERATOR)
    folder = tmp_path_factory.mktemp("studio")
    # In another thread, since Playwright occupies the event loop of this one.
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        context = running(folder, redis_url, repository, tasks=tasks, accounts=accounts)
        service = pool.submit(context.__enter__).result()
        stack.callback(lambda: pool.submit(context.__exit__, None, None, None).result())
        pool.submit(fill, service, images).result()
        yield Studio(service.base_url, lambda do: pool.submit(do, service.worker).result(), images)


def fill(service: Service, images: list[Sample]) -> None:
    """Creates finished tasks, a running one, and waiting ones."""
    worker = service.worker
    with service.client("default") as client:
        for each in images:
            task_id = client.order_task(IMAGE_ENDPOINT, prompt=each.prompt, aspect_ratio="4:3")
            worker.deliver(task_id, each.large, thumbnail=each.small)
        task_id = client.order_task(IMAGE_ENDPOINT, prompt="a large cyan ring on a black background")
        worker.advance(task_id, Status.GENERATING, progress=0.6)
        for prompt in ("a white moon at the top", "three small red stars"):
            client.order_task(IMAGE_ENDPOINT, prompt=prompt)


def playground(page: Page, studio: Studio) -> None:
    sample = studio.images[10]
    task_id = submit_prompt(page, sample.prompt)
    page.locator(".ratio").filter(has_text="4:3").click()
    expect(page.locator(".send").get_by_text("credits")).to_be_visible()
    studio.behind(lambda worker: worker.deliver(task_id, sample.large, thumbnail=sample.small))
    expect(page.get_by_role("article").first.get_by_role("img")).to_have_js_property("naturalWidth", 800)


def open_image(page: Page, studio: Studio) -> None:
    """Opens the hidden parts of the playground, with a running task."""
    submit_prompt(page, "a red star")
    for words in ("Layout", "Advanced", "Code"):
        page.get_by_text(words, exact=True).click()
    page.get_by_role("button", name="Add a box").click()
    expect(page.get_by_role("button", name="Copy").first).to_be_visible()


def boxes(page: Page, studio: Studio) -> None:
    page.goto("/")
    page.locator("textarea").fill("two shapes on a yellow background")
    page.locator(".ratio").filter(has_text="4:3").click()
    page.get_by_text("Layout").click()
    frame = page.get_by_role("group", name="Where things go")
    for words, start, end in (
        ("a red triangle", (0.15, 0.08), (0.41, 0.4)),
        ("a green circle", (0.64, 0.55), (0.94, 0.95)),
    ):
        drag_within(page, frame, start, end)
        page.keyboard.type(words)


def outpainting(page: Page, studio: Studio) -> None:
    page.goto("/?endpoint=gen-tools/outpainting-v1")
    page.locator("[data-name=input_image] input").set_input_files(file_payload("heart.jpeg", studio.images[10].large))
    expect(page.get_by_role("slider", name="Right edge")).to_have_attribute("aria-valuenow", "96")
    page.get_by_role("slider", name="Right edge").press("Shift+ArrowRight")


def keyframes(page: Page, studio: Studio) -> None:
    page.goto("/?endpoint=gen-3-video")
    page.get_by_role("button", name="Images to video").click()
    page.locator("textarea").fill("one shape becomes the next")
    files = [file_payload("a.jpeg", studio.images[at].small) for at in (2, 7, 14)]
    page.locator("[data-name=keyframes] input[type=file]").set_input_files(files)
    page.get_by_role("slider", name="Keyframe 2").press("Shift+ArrowLeft")


def gallery(page: Page, studio: Studio) -> None:
    page.goto("/gallery")
    expect(page.get_by_role("listitem").nth(20)).to_be_attached()
    for at in range(4):
        expect(page.locator("img.thumb").nth(at)).to_have_js_property("naturalWidth", 200)


def task(page: Page, studio: Studio) -> None:
    gallery(page, studio)
    page.get_by_role("link", name=f"Open: {studio.images[12].prompt}").click()
    expect(page.get_by_role("dialog").get_by_role("img")).to_have_js_property("naturalWidth", 800)


def task_page(page: Page, studio: Studio) -> None:
    gallery(page, studio)
    address = page.get_by_role("link", name=f"Open: {studio.images[12].prompt}").get_attribute("href")
    assert address
    page.goto(f"/t/{address.removeprefix('#')}")
    page.get_by_role("button", name="Share", exact=True).click()
    expect(page.get_by_role("img")).to_have_js_property("naturalWidth", 800)


def shared(page: Page, studio: Studio) -> None:
    task_page(page, studio)
    page.locator("a.secret").click()
    expect(page.get_by_role("link", name="Make one like it")).to_be_visible()


def not_found(page: Page, studio: Studio) -> None:
    page.goto("/galery")
    expect(page.get_by_role("heading", name="Page not found")).to_be_visible()


def guide(page: Page, studio: Studio) -> None:
    page.goto("/guide/models")
    expect(page.get_by_role("heading", name="Models", exact=True)).to_be_visible()


def fleet(page: Page, studio: Studio) -> None:
    """Shows the fleet with the figures of a busy day."""

    def busier(route: Route) -> None:
        answer = route.fetch().json()
        for queue, (queued, runs, mean) in zip(
            answer["models"], ((24, 8, 4.2), (3, 2, 21.0), (9, 4, 12.5)), strict=False
        ):
            queue |= {"queued": queued, "running": runs, "batch": 8, "step_s": mean / 20, "replicas": {"RUNNING": 2}}
            queue |= {"target_replicas": 2, "cold_start_s": 3 * mean}
            queue |= {"queued_s": queued * mean, "predicted_wait_s": queued * mean / runs}
            recent = {"wait_p50": queued, "wait_p95": 3.0 * queued, "run_p50": mean, "run_p95": 2 * mean}
            recent |= {"per_minute": 60 * runs / mean, "error_rate": 0.01, "failed": 9, "busy": 0.7}
            queue["windows"] = dict.fromkeys(queue["windows"], recent)
            queue["history"] = [
                {"ready": runs * (20 + minute * 7 % 5), "wait_p95": queued * (3 + minute * 11 % 9 / 9)}
                for minute in range(60)
            ]
            capacities = [predict_capacity(count, runs / mean, 1.4 * mean / runs, queued) for count in (1, 2, 3)]
            queue["what_if"] = [each.model_dump() for each in capacities]
        route.fulfill(json=answer)

    page.route("**/v1/admin/fleet", busier)
    page.goto("/fleet")
    expect(page.get_by_role("article").first).to_be_visible()


def account(page: Page, studio: Studio) -> None:
    page.goto("/account")
    expect(page.get_by_role("region", name="Usage this month")).to_be_visible()


def sign_in(page: Page, studio: Studio) -> None:
    page.goto("/sign-in")
    expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()


def consent(page: Page, studio: Studio) -> None:
    page.goto("/consent#nothing")
    expect(page.get_by_role("alert")).to_contain_text("Start again")


def invitation(page: Page, studio: Studio) -> None:
    page.goto("/invitation#nothing")
    expect(page.get_by_role("heading", name="Join")).to_be_visible()


VISITS = (
    gallery,
    task,
    task_page,
    shared,
    not_found,
    guide,
    playground,
    open_image,
    boxes,
    outpainting,
    keyframes,
    fleet,
    account,
    sign_in,
    consent,
    invitation,
)


@pytest.mark.parametrize("visit", VISITS)
def test_pages_are_accessible_and_fit_their_window(
    browser: Browser, studio: Studio, visit: Callable[[Page, Studio], None], repository: Path
) -> None:
    # Axe is a script that the content policy forbids.
    context = browser.new_context(base_url=studio.base_url, viewport=WIDE, reduced_motion="reduce", bypass_csp=True)
    page = context.new_page()
    visit(page, studio)
    screenshots = os.environ.get("SCREENSHOTS")
    for look in looks(page, every=bool(screenshots)):
        name = f"{visit.__name__}-{look}"
        if screenshots and name in IN_DOCS:
            page.evaluate("document.getElementById('form')?.scrollTo(0, 0)")
            page.screenshot(path=repository / screenshots / f"{name}.jpeg", type="jpeg", quality=72)
        violations: list[dict[str, Any]] = Axe().run(page).response["violations"]
        grave = {each["id"]: [node["html"] for node in each["nodes"]] for each in violations if each["impact"] in GRAVE}
        assert (grave, page.evaluate(WIDER)) == ({}, 0), look
    page.unroute_all(behavior="ignoreErrors")  # of requests in flight
    context.close()


def test_api_reference_fits_a_phone_in_the_dark(page: Page) -> None:
    page.set_viewport_size(NARROW)
    page.emulate_media(color_scheme="dark")
    page.goto("/docs")
    expect(page).to_have_title("Media generation · API reference · gen-serve")
    group = page.get_by_role("heading", name=re.compile("^generate"))
    expect(group).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    group.click()
    operation = page.locator("#operations-generate-gen3ImageKlein")
    operation.locator(".opblock-summary-control").click()
    expect(operation.locator(".opblock-body")).to_be_visible()
    for language, line in (
        ("curl", "curl http"),
        ("Python", "client.generate("),
        ("TypeScript", "await fetch("),
        ("CLI", "gen-serve generate"),
    ):
        operation.get_by_role("button", name=language, exact=True).click()
        expect(operation.locator(".samples pre")).to_contain_text(line)
    assert page.evaluate(WIDER) == 0


def tab_to(page: Page, element: Locator) -> None:
    """Presses the tab key until the element has the focus."""
    for _ in range(60):
        if element.evaluate("each => each === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{element} cannot be reached by the tab key")


def test_image_is_made_by_the_keyboard_alone(page: Page, behind: Behind) -> None:
    page.goto("/")
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("Enter")
    tab_to(page, page.locator("textarea"))
    page.keyboard.type("a red star by keys alone")
    tab_to(page, page.locator(".ratio input").first)
    page.keyboard.press("ArrowRight")
    tab_to(page, page.get_by_role("button", name="Generate"))
    with page.expect_response("**/v1/gen-3-image-klein") as answered:
        page.keyboard.press("Enter")
    task_id = answered.value.json()["id"]
    card = page.get_by_role("article").first
    tab_to(page, card.get_by_role("button", name="Cancel"))
    behind(lambda worker: worker.deliver(task_id, image_file(form="JPEG")))
    expect(page.locator("#announcements")).to_have_text("Done: a red star by keys alone")
    tab_to(page, card.get_by_role("link", name="Download"))
    assert behind(lambda worker: worker.job(task_id)["prompt"]) == "a red star by keys alone"
