"""What a picture shall show: read from a prompt, completed, and said as the checkpoint learnt it.

What is told in any order, in keywords, as a list or by counting becomes one sentence in which every thing has a place.
Nothing is made up but what has to be chosen: where things without a place go, colours that aren't named, and what is
behind a white thing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from deployments.contract.words import Words
from deployments.wording import backdrop, things
from deployments.wording.backdrop import Backdrop
from deployments.wording.items import (
    AND,
    CENTER,
    COLOUR,
    COUNT,
    IT,
    NOT,
    NOTHING,
    ONLY,
    OTHER,
    REMOVE,
    SHAPE,
    SIZE,
    STOP,
    THE,
    WITH,
    A,
    Item,
    codes,
)
from deployments.wording.places import each_placed
from deployments.wording.thing import Thing, at

_IDLE: Final = frozenset({A, THE, IT, OTHER})
_ABSENT: Final = (
    f"[{NOTHING}{NOT}][^{STOP}{AND}{ONLY}]*|{REMOVE}[{COLOUR}{SIZE}{COUNT}]*{SHAPE}[^{STOP}{AND}{ONLY}{WITH}]*"
)
_UNSAID: Final = "white"
"""What is behind everything if nothing is said of it."""
_CONTRASTS: Final = ("black", "gray", "dark blue")
"""What is put behind white things, then."""


@dataclass(frozen=True, slots=True)
class Picture:
    things: tuple[Thing, ...]
    backdrop: Backdrop | None

    def said(self) -> str:
        behind = self.backdrop.said() if self.backdrop else ""
        if len(self.things) == 1:
            [thing] = self.things
            told = thing.said() if thing.place == CENTER else f"{thing.said()} {at(thing.place)}"
        else:
            *first, last = [f"{thing.said()} {at(thing.place)}" for thing in self.things] or [""]
            told = f"{', '.join(first)} and {last}" if first else last
        return " on ".join(part for part in (told, behind) if part)


def read(row: Sequence[Item], words: Words) -> Picture | None:
    """None where nothing is told that can be seen. What isn't said is chosen in the order in which `words` have it."""
    behind, rest = backdrop.found(_without_sizes_of_dots([item for item in row if item.code not in _IDLE]))
    told, spare = things.read(_without_nothing(rest), words.shapes[0])
    if behind is None and spare:
        behind = Backdrop(spare)
    return _completed(told, behind, words.colours) if told or behind else None


def _without_sizes_of_dots(row: Sequence[Item]) -> list[Item]:
    kept = re.sub("Z(?=C?D)", "-", codes(row))
    return [item for item, code in zip(row, kept, strict=True) if code != "-"]


def _without_nothing(row: Sequence[Item]) -> list[Item]:
    """Without what isn't there: `nothing on it`, `not large`, `no moon`; nor is there anything where that is all."""
    kept = re.sub(_ABSENT, lambda match: "-" * len(match[0]), codes(row))
    if NOTHING in codes(row) and SHAPE not in kept:
        return []
    return [item for item, code in zip(row, kept, strict=True) if code != "-"]


def _completed(told: Sequence[Thing], behind: Backdrop | None, colours: Sequence[str]) -> Picture:
    placed = each_placed(told)
    if behind is None and any(thing.colour == _UNSAID for thing in placed):
        taken = {thing.colour for thing in placed}
        left = [colour for colour in (*_CONTRASTS, *colours) if colour in set(colours) - taken]
        behind = Backdrop(left[0]) if left else None
    if len(placed) == 1 and placed[0] == Thing(placed[0].shape, place=CENTER) and behind is None:
        return Picture(tuple(placed), None)  # of any colour, as seeds have it
    return Picture(tuple(_coloured(placed, behind, colours)), behind)


def _coloured(each: Sequence[Thing], behind: Backdrop | None, colours: Sequence[str]) -> list[Thing]:
    """Those without a colour have one that nothing else has, if there is any; equal things have the same."""
    taken = {thing.colour for thing in each} | set(behind.colours if behind else (_UNSAID,))
    spare = iter(
        [colour for colour in colours if not any(colour in other or other in colour for other in taken - {""})]
    )
    chosen: dict[str, str] = {}
    coloured: list[Thing] = []
    for thing in each:
        if not thing.colour:
            if thing.shape not in chosen:
                chosen[thing.shape] = next(spare, "")
            thing = replace(thing, colour=chosen[thing.shape])
        coloured.append(thing)
    return coloured
