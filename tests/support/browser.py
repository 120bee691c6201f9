"""What tests of pages share."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from playwright.sync_api import FilePayload, Page, ViewportSize

from support.worker import Worker

Behind: TypeAlias = Callable[[Callable[[Worker], object]], object]
"""Does something of the worker's while a page is open."""
CHROMIUM: Final = shutil.which("chromium")
WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}
EXAMPLE: Final = "a large yellow star on a black background"
"""One of those that the playground offers."""
NARROW: Final[ViewportSize] = {"width": 390, "height": 844}


def file_of(name: str, data: bytes) -> FilePayload:
    """A PNG that somebody picks from a disk."""
    return {"name": name, "mimeType": "image/png", "buffer": data}


def looks(page: Page) -> Iterator[str]:
    """The page as it is, wide and narrow, light and dark: `wide-light`, say."""
    for size, viewport in (("wide", WIDE), ("narrow", NARROW)):
        page.set_viewport_size(viewport)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            yield f"{size}-{scheme}"


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
