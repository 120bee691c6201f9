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
_ANY_SHAPE: Final = "circle"
"""Where something is asked for that has a colour or a place, but no shape."""
_MIRRORED: Final = {LEFT: RIGHT, RIGHT: LEFT}


def read(row: Sequence[Item]) -> tuple[list[Thing], str]:
    """All that are told, in order, and a colour that is said of none of them: empty, mostly."""
    told: list[Thing] = []
    spare = ""
    waiting: list[Item] = []  # what is said before the thing it belongs to
    places_lead = re.match(",*P,", codes(item for item in row if item.code in _SAID_OF_THINGS | _PARTED_BY)) is not None
    for part, before in _parts(row):
        if SHAPE in codes(part):
            for one in _each(part):
                if codes(waiting) == COLOUR and COLOUR in codes(one):
                    if before == AND:  # a red and a blue star
                        told.append(replace(_thing(one), colour=str(waiting.pop().value)))
                    else:
                        spare = str(waiting.pop().value)
                mentioned, waiting = _thing([*waiting, *one]), []
                if not _known(told, mentioned):
                    told.append(mentioned)
                    _relate(told, before)
                before = STOP
        elif codes(part) == COLOUR and told and told[-1].colour:
            spare = str(part[0].value)
        elif not told or (places_lead and codes(part) == PLACE):
            waiting += part
        else:
            _say_more(told, part)
    if not told and {COLOUR, SIZE, PLACE, COUNT} & set(codes(waiting)):
        told.append(replace(_thing(waiting), shape=_ANY_SHAPE))
    return told, spare


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
    before = re.match("[^S]*[CZN][^S]*S", told) is not None
    ends = [match.end() for match in re.finditer("[CZNRPb]*SP*" if before else "[NPb]*S[CZP]*", told)]
    begin = 0
    for end in [*ends[:-1], len(part)]:
        yield part[begin:end]
        begin = end


def _thing(row: Sequence[Item]) -> Thing:
    first = said(row)
    shape, colour, size, place = (first.get(code, "") for code in (SHAPE, COLOUR, SIZE, PLACE))
    return Thing(shape, colour, size, place, int(first.get(COUNT, 1)))


def _known(told: list[Thing], mentioned: Thing) -> bool:
    """Whether it is one of them that is spoken of again: `..., the star is red`."""
    for index, thing in enumerate(told):
        if thing.shape == mentioned.shape and not _contradict(thing, mentioned):
            told[index] = _with(thing, mentioned)
            return True
    return False


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


def _say_more(told: list[Thing], part: Sequence[Item]) -> None:
    """Of the last thing, of all (`both large`), or of one by its number (`first red`)."""
    number = int(said(part).get(ORDINAL, 0))
    one = number - 1 if 0 < number <= len(told) else len(told) - 1
    for index in range(len(told)) if ALL in codes(part) else (one,):
        told[index] = _with(told[index], _thing(part))


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
