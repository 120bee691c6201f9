"""What tests of pages share: windows, the requests that they really send, and a pointer that drags things."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from playwright.sync_api import FilePayload, FloatRect, Locator, Page, ViewportSize, expect

from support.worker import IMAGE_ENDPOINT, Worker

Behind: TypeAlias = Callable[[Callable[[Worker], Any]], Any]
"""Does something of the worker's while a page is open."""
CHROMIUM: Final = shutil.which("chromium")
WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}
DESK: Final[ViewportSize] = {"width": 1440, "height": 900}
NARROW: Final[ViewportSize] = {"width": 390, "height": 844}
EXAMPLE: Final = "a large yellow star on a black background"
"""One of those that the playground offers."""


def file_payload(name: str, data: bytes) -> FilePayload:
    """An image that somebody picks from a disk."""
    return {"name": name, "mimeType": "image/png", "buffer": data}


def looks(page: Page) -> Iterator[str]:
    """The page as it is, wide and narrow, light and dark: `wide-light`, say."""
    for size, viewport in (("wide", WIDE), ("narrow", NARROW)):
        page.set_viewport_size(viewport)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            yield f"{size}-{scheme}"


@dataclass(frozen=True)
class Submission:
    id: str
    """Of the task that came of it."""
    body: dict[str, Any]


def submit_form(page: Page, endpoint: str = IMAGE_ENDPOINT) -> Submission:
    """Presses the button of the form; the service must accept what it sends."""
    with page.expect_response(lambda response: response.url.endswith(f"/v1/{endpoint}")) as answered:
        page.get_by_role("button", name="Generate").click()
    response = answered.value
    assert response.ok, response.text()
    expect(page.get_by_role("article").first).to_be_visible()
    body = response.request.post_data_json
    assert isinstance(body, dict)
    return Submission(response.json()["id"], body)


def submit_prompt(page: Page, prompt: str) -> str:
    """The id of an image's task, begun on the first page."""
    page.goto("/")
    page.locator("textarea").fill(prompt)
    return submit_form(page).id


def around(element: Locator) -> FloatRect:
    element.scroll_into_view_if_needed()
    box = element.bounding_box()
    assert box is not None
    return box


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    """From one point of the window to another, over one between them."""
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    page.mouse.move(*end)
    page.mouse.up()


def drag_by(page: Page, element: Locator, across: float, down: float) -> None:
    """An element by its middle."""
    box = around(element)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    drag(page, (x, y), (x + across, y + down))


def drag_within(page: Page, element: Locator, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Between two points of an element, as parts of its sides."""
    box = around(element)
    first, last = ((box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end))
    drag(page, first, last)
