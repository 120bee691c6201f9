"""The ratio that a prompt asks for: in numbers (`16:9`, `1920x1080`, `3 by 2`), else in words that name a shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from serve_app.media.geometry import MIN_SIDE, RATIOS, nearest_ratio

_LONGEST: Final = 4
"""Pairs beyond this ratio are not about the shape of a picture: a scale of 1:100."""
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
    "square (?:picture|image|photo|painting|format|crop)|album cover|profile picture|app icon": "1:1",
    "portrait (?:format|orientation|mode)|movie poster|book cover": "2:3",
    "(?:phone|mobile) wallpaper|lock ?screen|instagram story|vertical (?:picture|image|photo|video|format)": "9:16",
}
"""Words that only ever name a shape, or something with a fixed one; `landscape` alone may be in the picture."""
_PHRASES: Final = tuple(
    (re.compile(rf"\b(?:{words.replace(' ', '[ -]+').replace('[ -]+?', '[ -]?')})\b", re.IGNORECASE), ratio)
    for words, ratio in _WORDS.items()
)


def ratio_from_prompt(prompt: str) -> str | None:
    """The name of the supported ratio, None where the prompt says nothing about its shape. The first pair counts."""
    for pair in _PAIR.finditer(prompt):
        width, height = Fraction(pair[1]), Fraction(pair[3])
        if not width or not height or max(width / height, height / width) > _LONGEST:
            continue
        if pair[2] and len(pair[3]) == 2 and f"{pair[1]}:{pair[3]}" not in RATIOS:
            continue  # a time of day
        if not pair[2] and width == height and 1 < width < MIN_SIDE:
            continue  # a 4x4 truck
        return nearest_ratio(width / height)
    found = [(match.start(), ratio) for words, ratio in _PHRASES if (match := words.search(prompt))]
    return min(found)[1] if found else None
