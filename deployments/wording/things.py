"""Reads which things a picture shall have: what is said of each, before it, after it, or later on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from deployments.wording.items import (
    ABOVE,
    ALL,
    AND,
    BELOW,
    BESIDE,
    BOTTOM,
    COLOUR,
    COUNT,
    LEFT,
    ON,
    ORDINAL,
    PLACE,
    RIGHT,
    SHAPE,
    SIZE,
    STOP,
    THING,
    TOP,
    WITH,
    Item,
    codes,
    said,
)
from deployments.wording.thing import Thing

_PARTED_BY: Final = frozenset({STOP, AND, WITH, ABOVE, BELOW, BESIDE, ON})
_SAID_OF_THINGS: Final = frozenset({COLOUR, SHAPE, SIZE, PLACE, COUNT, ORDINAL, ALL, THING})
_RELATED: Final = {ABOVE: (TOP, BOTTOM), ON: (TOP, BOTTOM), BELOW: (BOTTOM, TOP)}
"""Where the thing before it is, and the one after it."""
_MIRRORED: Final = {LEFT: RIGHT, RIGHT: LEFT}


def read(row: Sequence[Item], any_shape: str) -> tuple[list[Thing], str]:
    """All that are told, in order, and a colour that is said of none of them: empty, mostly.

    Something that has a colour or a place, but no shape, has `any_shape`.
    """
    reading = _Reading()
    parts = list(_parts(row))
    reading.places_lead = len(parts) > 1 and codes(parts[0][0]) == PLACE
    for part, before in parts:
        if SHAPE in codes(part):
            reading.mention(part, before)
        else:
            reading.say_more(part)
    return reading.things(any_shape), reading.spare


class _Reading:
    def __init__(self) -> None:
        self.told: list[Thing] = []
        self.spare = ""
        self.places_lead = False
        """Whether places are said before the things that are there."""
        self._spoken_of = -1
        """Index of the thing."""
        self._waiting: list[Item] = []
        """What is said before the thing it belongs to."""
        self._announced = 0
        """How many things were said to come."""

    def things(self, any_shape: str) -> list[Thing]:
        if not self.told and {COLOUR, SIZE, PLACE, COUNT} & set(codes(self._waiting)):
            self.told.append(replace(_thing(self._waiting), shape=any_shape))
        if self._announced == len(self.told):  # only two: a star, a moon
            return [replace(thing, count=1) for thing in self.told]
        return self.told

    def mention(self, part: Sequence[Item], before: str) -> None:
        for one in _each(part):
            if codes(self._waiting) == COLOUR and COLOUR in codes(one):
                colour = str(self._waiting.pop().value)
                if before == AND:  # a red and a blue star
                    self.told.append(replace(_thing(one), colour=colour))
                else:
                    self.spare = colour
            if codes(self._waiting) == COUNT:
                self._announced = int(self._waiting[0].value)
            thing, self._waiting = _thing([*self._waiting, *one]), []
            self._spoken_of = next((k for k, known in enumerate(self.told) if _may_be(thing, known)), len(self.told))
            if self._spoken_of < len(self.told):  # ..., the star is red
                self.told[self._spoken_of] = _with(self.told[self._spoken_of], thing)
            else:
                self.told.append(thing)
                _relate(self.told, before)
            before = STOP

    def say_more(self, part: Sequence[Item]) -> None:
        """Of the thing spoken of, of all (`both large`), or of one by its number (`first red`)."""
        number = int(said(part).get(ORDINAL, 0))
        if ALL in codes(part):
            self.told = [_with(thing, _thing(part)) for thing in self.told]
            return
        if not self.told or (codes(part) == PLACE and self.places_lead):
            self._waiting += part
            return
        index = number - 1 if 0 < number <= len(self.told) else self._spoken_of
        thing, more = self.told[index], _thing(part)
        if codes(part) == COLOUR and thing.colour:
            self.spare = more.colour
        elif codes(part) != PLACE or not thing.place:
            self.told[index] = _with(thing, more)
        elif thing.count > 1:  # two stars, one at the top, one at the bottom
            self.told[index : index + 1] = [
                replace(thing, count=1),
                replace(thing, place=more.place, count=thing.count - 1),
            ]
            self._spoken_of = index + 1
        else:
            self._waiting += part


def _parts(row: Sequence[Item]) -> Iterator[tuple[list[Item], str]]:
    """What stands between stops and words like `and`, and which of these is before it. `both` begins one, too."""
    part: list[Item] = []
    before = STOP
    for item in [*row, Item(STOP)]:
        if item.code in _PARTED_BY or item.code == ALL:
            if kept := _without_things_to_come(part):
                yield kept, before
                before = STOP
            if item.code not in (ALL, STOP) and (before == STOP or item.code != AND):
                before = item.code
            part = [item] if item.code == ALL else []
        elif item.code in _SAID_OF_THINGS:
            part.append(item)


def _without_things_to_come(part: Sequence[Item]) -> list[Item]:
    """`three things`, which are told one by one afterwards, are none themselves."""
    kept = re.sub("N[CZ]*q(?![CZ]*S)", lambda match: "-" * len(match[0]), codes(part))
    return [item for item, code in zip(part, kept, strict=True) if code not in ("-", THING)]


def _each(part: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """A thing each: colours and sizes are said before all shapes of a part, or after all of them."""
    told = codes(part)
    if re.fullmatch("(P[CZN]*S){2,}", told):  # on the left a star on the right a moon
        form = "P[CZN]*S"
    elif re.match("[^S]*[CZN][^S]*S", told):
        form = "[CZNRPb]*SP*"
    else:
        form = "[NPb]*S[CZP]*"
    ends = [match.end() for match in re.finditer(form, told)]
    begin = 0
    for end in [*ends[:-1], len(part)]:
        yield part[begin:end]
        begin = end


def _thing(row: Sequence[Item]) -> Thing:
    first = said(row)
    shape, colour, size, place = (first.get(code, "") for code in (SHAPE, COLOUR, SIZE, PLACE))
    return Thing(shape, colour, size, place, int(first.get(COUNT, 1)))


def _may_be(thing: Thing, known: Thing) -> bool:
    return thing.shape == known.shape and not _contradict(thing, known)


def _contradict(thing: Thing, other: Thing) -> bool:
    pairs = ((thing.colour, other.colour), (thing.size, other.size), (thing.place, other.place))
    return any(one and two for one, two in pairs) or (thing.count > 1 and other.count > 1)


def _with(thing: Thing, more: Thing) -> Thing:
    """With what else is said of it; what was said first counts."""
    return Thing(
        thing.shape,
        thing.colour or more.colour,
        thing.size or more.size,
        thing.place or more.place,
        max(thing.count, more.count),
    )


def _relate(told: list[Thing], word: str) -> None:
    """The last thing to the one before it: `a star above a circle`, `a star on the left, next to a circle`."""
    if len(told) < 2:
        return
    first, second = told[-2:]
    if word in _RELATED and not first.place and not second.place:
        here, there = _RELATED[word]
        told[-2:] = [replace(first, place=here), replace(second, place=there)]
    elif word == BESIDE and not second.place:
        sides = (_MIRRORED.get(side, side) for side in first.place.split())
        if {LEFT, RIGHT} & set(first.place.split()):
            told[-1] = replace(second, place=" ".join(sides))
