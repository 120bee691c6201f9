"""A pointer that drags things over a page."""

from __future__ import annotations

from playwright.sync_api import FloatRect, Locator, Page


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
