"""Sizes of videos. Lengths are in pixels, areas in square pixels.

Like a tier of pictures, a resolution is an area, so that every ratio at one of them costs about the same work. Sides
are multiples of 64; a draft has half of each, which leaves multiples of 32.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from types import MappingProxyType
from typing import Final

from serve_app.media.geometry import RATIOS, Ratio, Size, size_for

CLIP_RATIOS: Final = tuple(RATIOS[name] for name in ("21:9", "16:9", "4:3", "1:1", "3:4", "9:16", "9:21"))
"""Those that requests for videos can name, widest first."""

CLIP_AREAS: Final[Mapping[str, int]] = MappingProxyType({"hd": 1280 * 704, "fhd": 1920 * 1088})
"""Areas of the named resolutions; their sizes at 16:9 give them."""

_GRID: Final = 64
_DRAFT_GRID: Final = _GRID // 2


def clip_area(resolution: str, *, draft: bool = False) -> int:
    """The nominal area of what is made, to price and to size. Raises KeyError for a resolution without such a name."""
    return CLIP_AREAS[resolution] // (4 if draft else 1)


def clip_size(ratio: Ratio, area: int, *, draft: bool = False) -> Size:
    """The size of about `area` with about `ratio`. That of a draft is exactly half of the full one, each way."""
    return size_for(ratio, area, _DRAFT_GRID if draft else _GRID)


def clip_ratio(ratio: Ratio) -> Ratio:
    """The one of `CLIP_RATIOS` closest to `ratio`, by factor."""
    return min(CLIP_RATIOS, key=lambda known: abs(log(known / ratio)))
