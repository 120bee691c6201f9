"""Where things go: those that have no place, and those that are said to be in the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from deployments.wording.items import BOTTOM, CENTER, LEFT, RIGHT, TOP
from deployments.wording.thing import MOST, Thing

SPREAD: Final[Mapping[int, tuple[str, ...]]] = {
    0: (),
    1: (CENTER,),
    2: (LEFT, RIGHT),
    3: (TOP, "bottom left", "bottom right"),
    4: ("top left", "top right", "bottom left", "bottom right"),
    5: ("top left", "top right", CENTER, "bottom left", "bottom right"),
}
"""Where so many things are, if nothing is said of it."""


def each_placed(told: Sequence[Thing]) -> list[Thing]:
    """One by one, each with a place that no other has, and `MOST` at most, which are small ones then.

    Several that are said to be in one place are there side by side, as far as there is room beside it.
    """
    each = [replace(thing, count=1) for thing in told for _ in range(thing.count)][:MOST]
    if len(each) == MOST:  # there is no room for larger ones
        each = [replace(thing, size="small") for thing in each]
    taken: set[str] = set()
    placed: list[Thing] = []
    for thing in each:
        place = next((near for near in (thing.place, *_near(thing.place)) if near not in taken), "")
        taken.add(place)
        placed.append(replace(thing, place=place))
    free = [place for place in SPREAD[len(each)] if place not in taken]
    return [thing if thing.place else replace(thing, place=free.pop(0)) for thing in placed]


def _near(place: str) -> tuple[str, ...]:
    if place in (LEFT, RIGHT):
        return f"top {place}", f"bottom {place}"
    if place in (TOP, BOTTOM):
        return f"{place} left", f"{place} right"
    if place == CENTER:
        return LEFT, RIGHT
    return tuple(place.split())
