"""Sizes of images and videos: ratios, resolution tiers, limits, megapixels. Lengths are pixels, areas square pixels.

A tier is an area, not a side: every ratio at one tier costs about the same work. The published limits follow from
rounding each side of a named ratio to the nearest multiple of 16: 21:9 at `4k` is 6256x2688, the longest side, and 4:3
at `4k` is 4736x3552, the largest area.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt, log
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from deployments.contract.request import MEGAPIXEL

Ratio: TypeAlias = Fraction
"""Width over height."""

MIN_SIDE: Final = 64
MAX_SIDE: Final = 6256
MAX_AREA: Final = 16_822_272

GRID: Final = 16
"""Divisor of the sides of named ratios, pixels."""

RATIOS: Final[Mapping[str, Ratio]] = MappingProxyType(
    {
        name: Fraction(*map(int, name.split(":")))
        for name in (
            *("21:9", "2:1", "16:9", "3:2", "7:5", "4:3", "5:4", "1:1"),
            *("4:5", "3:4", "5:7", "2:3", "9:16", "1:2", "9:21"),
        )
    }
)
"""Ratios by the names that clients use, widest first."""

TIERS: Final[Mapping[str, int]] = MappingProxyType(
    {"768sq": 768**2, "1k": 1024**2, "1.5k": 1536**2, "2k": 2048**2, "4k": 4096**2}
)
"""Areas of the named resolutions, smallest first."""

DEFAULT_TIER: Final = "1k"
AUTO: Final = "auto"


class Size(NamedTuple):
    width: int
    height: int

    @property
    def area(self) -> int:
        return self.width * self.height

    @property
    def ratio(self) -> Ratio:
        return Fraction(self.width, self.height)


@dataclass(frozen=True, slots=True)
class ImageSize:
    """Size of an image as far as it is known when its request is accepted.

    `size` is None while the ratio depends on the prompt. `area` is billed: that of `size`, or of the tier, whose price
    `size_within` keeps to.
    """

    area: int
    size: Size | None


def size_for(ratio: Ratio, area: int, grid: int = GRID) -> Size:
    """Returns the size whose sides are the multiples of `grid` nearest to `area` and `ratio`, at least `grid`."""
    return Size(_nearest_on_grid(ratio * area, grid), _nearest_on_grid(area / ratio, grid))


def size_within(ratio: Ratio, area: int) -> Size:
    """Returns `size_for` with its longer side shortened by one step if it would be billed as more than `area`."""
    size = size_for(ratio, area)
    if billed_megapixels(size.area) <= billed_megapixels(area):
        return size
    if size.width > size.height:
        return Size(size.width - GRID, size.height)
    return Size(size.width, size.height - GRID)


def nearest_ratio(ratio: Ratio) -> str:
    """Returns the name of the ratio closest to `ratio`, by factor: 2:1 is as far from 1:1 as 1:2 is."""
    return min(RATIOS, key=lambda name: abs(log(RATIOS[name] / ratio)))


def nearest_tier(width: int, height: int) -> str:
    """Returns the name of the tier whose area is closest to that of the given size, by factor."""
    return min(TIERS, key=lambda name: abs(log(Fraction(TIERS[name], width * height))))


def fit(width: int, height: int) -> Size:
    """Scales a size to the limits, if it exceeds them, with its ratio kept to the pixel.

    The sides are `MIN_SIDE` to `MAX_SIDE`, the area at most `MAX_AREA`. A strip too narrow for them gets the narrowest
    size.
    """
    narrowest = Fraction(MIN_SIDE, MAX_SIDE)
    ratio = min(max(Fraction(width, height), narrowest), 1 / narrowest)
    largest = min(Fraction(MAX_SIDE), MAX_SIDE * ratio, Fraction(isqrt(int(MAX_AREA * ratio))))
    smallest = max(Fraction(MIN_SIDE), MIN_SIDE * ratio)
    exact = min(max(Fraction(width), smallest), largest)
    return Size(int(exact), int(exact / ratio))


def scale_to(width: int, height: int, area: int) -> Size:
    """Scales a size to about `area` with its ratio kept to the pixel, within the limits of `fit`."""
    ratio = Fraction(width, height)
    return fit(max(1, isqrt(int(area * ratio))), max(1, isqrt(int(area / ratio))))


def image_size(
    *,
    width: int | None = None,
    height: int | None = None,
    aspect_ratio: str = AUTO,
    resolution: str | None = None,
    reference: tuple[int, int] | None = None,
) -> ImageSize:
    """Returns the size of the image to generate.

    `width` and `height` take precedence. `reference` is the size of the first reference image; None for text-to-image.
    With the ratio `auto`, an edit keeps the reference's ratio, and its size unless `resolution` names a tier;
    text-to-image leaves the ratio open. With a named ratio, an edit without `resolution` takes the tier nearest to the
    reference. Raises KeyError for an unknown ratio or resolution.
    """
    if width is not None and height is not None:
        return _exact(Size(width, height))
    if reference is not None and aspect_ratio == AUTO:
        if resolution is None:
            return _exact(fit(*reference))
        return _exact(scale_to(*reference, TIERS[resolution]))
    if resolution is None:
        resolution = DEFAULT_TIER if reference is None else nearest_tier(*reference)
    area = TIERS[resolution]
    return ImageSize(area, None) if aspect_ratio == AUTO else _exact(size_for(RATIOS[aspect_ratio], area))


def megapixels(area: int) -> float:
    """Returns the megapixels of an area as reported, with 2 decimals."""
    return round(area / MEGAPIXEL, 2)


def billed_megapixels(area: int) -> int:
    """Returns the megapixels of an area as billed: those reported, rounded up. Only an area of 0 is free."""
    return max(ceil(megapixels(area)), 1 if area else 0)


def _exact(size: Size) -> ImageSize:
    return ImageSize(size.area, size)


def _nearest_on_grid(square: Fraction, grid: int) -> int:
    """Returns the multiple of `grid` nearest to the square root of `square`, without floating point."""
    halves = isqrt(int(4 * square / grid**2))
    return max(1, (halves + 1) // 2) * grid


VIDEO_RATIOS: Final = tuple(RATIOS[name] for name in ("21:9", "16:9", "4:3", "1:1", "3:4", "9:16", "9:21"))
"""Ratios that requests for videos can name, widest first."""

VIDEO_AREAS: Final[Mapping[str, int]] = MappingProxyType({"hd": 1280 * 704, "fhd": 1920 * 1088})
"""Areas of the named resolutions, from their sizes at 16:9."""

_GRID: Final = 64
_DRAFT_GRID: Final = _GRID // 2


def video_area(resolution: str, *, draft: bool = False) -> int:
    """Returns the nominal area of a video, for its price and size. Raises KeyError for an unknown resolution."""
    return VIDEO_AREAS[resolution] // (4 if draft else 1)


def video_size(ratio: Ratio, area: int, *, draft: bool = False) -> Size:
    """Returns the size nearest to `area` and `ratio`. Each side of a draft is exactly half of the full size's."""
    return size_for(ratio, area, _DRAFT_GRID if draft else _GRID)


def video_ratio(ratio: Ratio) -> Ratio:
    """Returns the one of `VIDEO_RATIOS` closest to `ratio`, by factor."""
    return min(VIDEO_RATIOS, key=lambda option: abs(log(option / ratio)))


DEFAULT_RATIO: Final = "16:9"
"""Ratio for a prompt that says nothing about the image's shape."""

_MAX_RATIO: Final = 4
"""Maximum ratio of a pair of numbers that describes the shape of an image; 1:100 is a scale."""
_NUMBER: Final = r"\d{1,5}(?:\.\d{1,3})?"
_TIMES: Final = r"\s?[x\u00d7]\s?"
_PAIR: Final = re.compile(
    rf"(?<![\w.:/-])({_NUMBER})(?:\s?(:)\s?|{_TIMES}|\s+by\s+|-by-)({_NUMBER})(?![\d:]|\.\d|{_TIMES}\d|\s?[ap]\.?m\b)",
    re.IGNORECASE,
)
_WORDS: Final[Mapping[str, str]] = {
    "ultra ?wide|panorama|panoramic|cinemascope": "21:9",
    "wide ?screen|desktop wallpaper|youtube thumbnail|horizontal (?:picture|image|photo|format)": "16:9",
    "landscape (?:format|orientation|mode)": "3:2",
    "square (?:picture|image|photo|painting|format|crop)|album cover|profile (?:picture|image)|app icon": "1:1",
    "portrait (?:format|orientation|mode)|movie poster|book cover": "2:3",
    "(?:phone|mobile) wallpaper|lock ?screen|instagram story|vertical (?:picture|image|photo|video|format)": "9:16",
}
"""Words for a shape, or for something with a fixed one. `landscape` by itself may be the subject of the image."""
_PHRASES: Final = tuple(
    (re.compile(rf"\b(?:{words.replace(' ', '[ -]+').replace('[ -]+?', '[ -]?')})\b", re.IGNORECASE), ratio)
    for words, ratio in _WORDS.items()
)


def ratio_from_prompt(prompt: str) -> str | None:
    """Returns the name of the ratio that the prompt asks for, if any. Its first pair of numbers takes precedence."""
    for pair in _PAIR.finditer(prompt):
        width, height = Fraction(pair[1]), Fraction(pair[3])
        if not width or not height or max(width / height, height / width) > _MAX_RATIO:
            continue
        if pair[2] and len(pair[3]) == 2 and f"{pair[1]}:{pair[3]}" not in RATIOS:
            continue  # a time of day
        if not pair[2] and width == height and 1 < width < MIN_SIDE:
            continue  # a 4x4 truck
        return nearest_ratio(width / height)
    matches = [(match.start(), ratio) for words, ratio in _PHRASES if (match := words.search(prompt))]
    return min(matches)[1] if matches else None
