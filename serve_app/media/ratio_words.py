"""The ratio a prompt asks for in words.

Numbers win over words, and the first number pair wins over later ones: `16:9`, `16 x 9`, `1920x1080`, `3 by 2`,
`2.39:1`. A pair that is no supported ratio stands for the nearest one (`8x10` is 4:5). Not taken for ratios:

- times (`at 16:30`, `9:16 pm`): after a colon, two digits count only where they name a common ratio, and not where
  the text around them speaks of a time;
- counts and scales: equal numbers other than one (`a 4x4 truck`, `3x3 grid`), unless they are pixel sizes, and anything
  more than four times as long as it is wide (`1:100`).

Among words, those that only ever name a shape (`widescreen`) win over those that may name a thing in the picture
(`landscape`, `banner`); among equals the first one wins. Only whole words count, in any case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from serve_app.media.geometry import MIN_SIDE, nearest_ratio

_LONGEST: Final = 4
"""Pairs beyond this ratio are not about the shape of a picture."""

_COMMON_TWO_DIGIT: Final = frozenset({"9:16", "9:18", "9:19", "9:20", "9:21", "16:10", "10:16"})

_NUMBER: Final = r"\d{1,5}(?:\.\d{1,3})?"
_TIMES: Final = r"\s?[x\u00d7]\s?"
_PAIR: Final = re.compile(
    rf"(?<![\w.:/-])({_NUMBER})(?:\s?(:)\s?|{_TIMES}|\s+by\s+|-by-)({_NUMBER})(?![\d:]|\.\d|{_TIMES}\d)", re.IGNORECASE
)
_TIME_BEFORE: Final = re.compile(
    r"\b(?:at|until|till|since|around|about|before|after|clock|time|o'clock|reads|reading|shows|showing)\s+$",
    re.IGNORECASE,
)
_TIME_AFTER: Final = re.compile(r"\s?(?:[ap]\.?m\b|o'clock|h\b|hours?\b)", re.IGNORECASE)
_RATIO_AFTER: Final = re.compile(r"\s?(?:aspect|ratio|format|frame|crop)\b", re.IGNORECASE)

_SHAPES: Final[Mapping[str, str]] = {
    "widescreen": "16:9",
    "wide screen": "16:9",
    "desktop wallpaper": "16:9",
    "computer wallpaper": "16:9",
    "youtube thumbnail": "16:9",
    "video thumbnail": "16:9",
    "presentation slide": "16:9",
    "horizontal format": "3:2",
    "landscape format": "3:2",
    "landscape orientation": "3:2",
    "landscape mode": "3:2",
    "ultrawide": "21:9",
    "ultra wide": "21:9",
    "cinemascope": "21:9",
    "anamorphic": "21:9",
    "panorama": "21:9",
    "panoramic": "21:9",
    "website header": "21:9",
    "web banner": "21:9",
    "website banner": "21:9",
    "square format": "1:1",
    "album cover": "1:1",
    "album art": "1:1",
    "profile picture": "1:1",
    "app icon": "1:1",
    "phone wallpaper": "9:16",
    "mobile wallpaper": "9:16",
    "smartphone wallpaper": "9:16",
    "iphone wallpaper": "9:16",
    "android wallpaper": "9:16",
    "lock screen": "9:16",
    "lockscreen": "9:16",
    "instagram story": "9:16",
    "instagram reel": "9:16",
    "portrait format": "2:3",
    "portrait orientation": "2:3",
    "portrait mode": "2:3",
    "movie poster": "2:3",
    "film poster": "2:3",
    "book cover": "2:3",
    "greeting card": "5:7",
    "postcard": "7:5",
}
"""Words that only ever name a shape or something with a fixed one."""

_SUBJECTS: Final[Mapping[str, str | None]] = {
    "square": "1:1",
    "avatar": "1:1",
    "icon": "1:1",
    "logo": "1:1",
    "portrait": "2:3",
    "poster": "2:3",
    "full body": "2:3",
    "full height": "2:3",
    "full length": "2:3",
    "head to toe": "2:3",
    "tall": "2:3",
    "towering": "2:3",
    "vertical": "9:16",
    "story": "9:16",
    "landscape": "3:2",
    "horizontal": "16:9",
    "wallpaper": "16:9",
    "thumbnail": "16:9",
    "cinematic": "21:9",
    "banner": "21:9",
    # Phrases in which these words say nothing of the shape; as longer matches they hide the words inside.
    "times square": None,
    "town square": None,
    "market square": None,
    "city square": None,
    "village square": None,
    "public square": None,
    "red square": None,
    "trafalgar square": None,
    "tiananmen square": None,
    "love story": None,
    "short story": None,
    "bedtime story": None,
    "toy story": None,
    "story of": None,
    "story about": None,
    "single story": None,
    "two story": None,
    "three story": None,
    "multi story": None,
    "religious icon": None,
    "fashion icon": None,
    "wallpaper pattern": None,
    "tall grass": None,
    "tall grasses": None,
    "tall ship": None,
}
"""Words that hint at a shape, though they may name a thing in the picture; None where they certainly do."""

_ADJECTIVES: Final = frozenset({"square", "vertical", "horizontal"})
"""Of them, those that as often tell of a thing (`a big blue square`, `vertical stripes`): they count only where they
speak of the picture, or stand alone between commas."""
_OF_THE_PICTURE: Final = re.compile(
    r"(?:[\s-]+\w+){0,2}?[\s-]+(?:pictures?|images?|photos?|photographs?|paintings?|drawings?|illustrations?|sketch"
    r"|prints?|posters?|format|crop|framing|canvas|shot|compositions?|portraits?|layout|aspect|ratio|orientation|video|clip"
    r"|wallpaper|banner|thumbnail|post|tile|cover)\b",
    re.IGNORECASE,
)
_LEADS_UP: Final = re.compile(r"(?:^|[,.;:(]|\b(?:in|as|format|make it))$", re.IGNORECASE)
_LEADING: Final = len("make it") + 1
_ENDS: Final = re.compile(r"\s*(?:$|[,.;:)])")
"""What is before and after a word that stands alone."""


def _whole_words(phrases: Mapping[str, str | None]) -> re.Pattern[str]:
    """Finds any of the phrases, longest first, their words joined by spaces or a hyphen."""
    longest_first = sorted(phrases, key=len, reverse=True)
    return re.compile(r"\b(?:" + "|".join(p.replace(" ", r"[\s-]+") for p in longest_first) + r")\b", re.IGNORECASE)


_GROUPS: Final = tuple((_whole_words(phrases), phrases) for phrases in (_SHAPES, _SUBJECTS))


def ratio_from_prompt(prompt: str) -> str | None:
    """The name of the supported ratio that the prompt asks for, None when it says nothing about its shape."""
    return _from_numbers(prompt) or _from_words(prompt)


def _from_numbers(prompt: str) -> str | None:
    for pair in _PAIR.finditer(prompt):
        width, height = Fraction(pair[1]), Fraction(pair[3])
        if not width or not height or max(width / height, height / width) > _LONGEST:
            continue
        if pair[2] and _is_time(pair):
            continue
        if not pair[2] and width == height and 1 < width < MIN_SIDE:
            continue
        return nearest_ratio(width / height)
    return None


def _is_time(pair: re.Match[str]) -> bool:
    """Whether a pair with a colon reads as a time of day (or a chapter and verse)."""
    minutes = pair[3]
    if "." in minutes or len(minutes) != 2:
        return False
    if f"{pair[1]}:{minutes}" not in _COMMON_TWO_DIGIT:
        return True
    if _RATIO_AFTER.match(pair.string, pair.end()):
        return False
    before = pair.string[max(0, pair.start() - 16) : pair.start()]
    return bool(_TIME_BEFORE.search(before) or _TIME_AFTER.match(pair.string, pair.end()))


def _from_words(prompt: str) -> str | None:
    for pattern, phrases in _GROUPS:
        for match in pattern.finditer(prompt):
            phrase = re.sub(r"[\s-]+", " ", match[0]).lower()
            ratio = phrases[phrase]
            if ratio is not None and (phrase not in _ADJECTIVES or _speaks_of_the_picture(match)):
                return ratio
    return None


def _speaks_of_the_picture(adjective: re.Match[str]) -> bool:
    prompt = adjective.string
    if _OF_THE_PICTURE.match(prompt, adjective.end()):
        return True
    if not _ENDS.match(prompt, adjective.end()):
        return False
    before = prompt[: adjective.start()].rstrip()
    return _LEADS_UP.search(before, max(0, len(before) - _LEADING)) is not None
