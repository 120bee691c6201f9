"""Helpers for tests of pages: window sizes, forms and their requests, and a pointer that drags elements."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from playwright.sync_api import FilePayload, FloatRect, Locator, Page, ViewportSize, expect

from support.worker import IMAGE_ENDPOINT, Worker

Behind: TypeAlias = Callable[[Callable[[Worker], Any]], Any]
"""Runs a function of the worker while a page is open."""
CHROMIUM: Final = shutil.which("chromium")
WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}
DESK: Final[ViewportSize] = {"width": 1440, "height": 900}
NARROW: Final[ViewportSize] = {"width": 390, "height": 844}
EXAMPLE: Final = "a large yellow star on a black background"
"""A prompt that the playground offers."""


def file_payload(name: str, data: bytes) -> FilePayload:
    return {"name": name, "mimeType": "image/png", "buffer": data}


def looks(page: Page, *, every: bool) -> Iterator[str]:
    """Shows the page wide in light colours and narrow in dark ones, or in every combination.

    Yields the name of each look, such as `wide-light`.
    """
    for size, viewport, usual in (("wide", WIDE, "light"), ("narrow", NARROW, "dark")):
        page.set_viewport_size(viewport)
        for scheme in ("light", "dark"):
            if every or scheme == usual:
                page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                yield f"{size}-{scheme}"


@dataclass(frozen=True)
class Submission:
    id: str
    """The task's id."""
    body: dict[str, Any]


def submit_form(page: Page, endpoint: str = IMAGE_ENDPOINT) -> Submission:
    """Submits the form, which the service must accept."""
    with page.expect_response(lambda response: response.url.endswith(f"/v1/{endpoint}")) as answered:
        page.get_by_role("button", name="Generate").click()
    response = answered.value
    assert response.ok, response.text()
    expect(page.get_by_role("article").first).to_be_visible()
    body = response.request.post_data_json
    assert isinstance(body, dict)
    return Submission(response.json()["id"], body)


def submit_prompt(page: Page, prompt: str) -> str:
    """Submits a prompt on the playground. Returns the task's id."""
    page.goto("/")
    page.locator("textarea").fill(prompt)
    return submit_form(page).id


def around(element: Locator) -> FloatRect:
    element.scroll_into_view_if_needed()
    box = element.bounding_box()
    assert box is not None
    return box


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drags from one point of the window to another, with a stop halfway."""
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    page.mouse.move(*end)
    page.mouse.up()


def drag_by(page: Page, element: Locator, across: float, down: float) -> None:
    """Drags an element by its middle."""
    box = around(element)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    drag(page, (x, y), (x + across, y + down))


def drag_within(page: Page, element: Locator, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drags between two points of an element, given as fractions of its sides."""
    box = around(element)
    first, last = ((box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end))
    drag(page, first, last)
