"""What tests of pages share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from playwright.sync_api import FilePayload, ViewportSize

from support.worker import Worker

Behind: TypeAlias = Callable[[Callable[[Worker], object]], object]
"""Does something of the worker's while a page is open."""
WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}
NARROW: Final[ViewportSize] = {"width": 390, "height": 844}


def file_of(name: str, data: bytes) -> FilePayload:
    """A PNG that somebody picks from a disk."""
    return {"name": name, "mimeType": "image/png", "buffer": data}
