"""A thing in a picture, and how it and its place are said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deployments.wording.items import BOTTOM, LEFT, RIGHT, TOP

MOST: Final = 5
"""Things in a picture."""


@dataclass(frozen=True, slots=True)
class Thing:
    """What isn't said is empty."""

    shape: str = ""
    colour: str = ""
    size: str = ""
    place: str = ""
    count: int = 1

    def said(self) -> str:
        """`a small red star`, without its place; one of medium size has no size."""
        size = "" if self.size == "medium" else self.size
        return with_article(" ".join(word for word in (size, self.colour, self.shape) if word))


def at(place: str) -> str:
    """`in the top left`, `on the right`; empty for no place."""
    if not place:
        return ""
    return f"{'on' if place in (LEFT, RIGHT) else 'at' if place in (TOP, BOTTOM) else 'in'} the {place}"


def with_article(told: str) -> str:
    return f"an {told}" if told[0] in "aeiou" else f"a {told}"
