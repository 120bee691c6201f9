"""How two pictures become one: a thing of one in the other, or in front of what is behind the other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from deployments.wording.items import (
    AND,
    COLOUR,
    ORDINAL,
    OTHER,
    PICTURE,
    PLACE,
    SHAPE,
    SIZE,
    THE,
    THING,
    A,
    Item,
    codes,
)
from deployments.wording.mention import Subject
from deployments.wording.thing import at

_IDLE: Final = frozenset({OTHER, THE, A, AND})


def read(row: Sequence[Item]) -> str:
    """Empty where it isn't said what comes from which picture."""
    kept = [_numbered(item) for item in row if item.code not in _IDLE]
    kept = [item for item in kept if item.code != PICTURE or item.value in (1, 2)]
    told = codes(kept)
    if PICTURE not in told:
        return ""
    shapes = [index for index, item in enumerate(kept) if item.code == SHAPE]
    one_thing = len({kept[index].value for index in shapes}) == 1
    behind = _behind(kept)
    if behind:
        pictures = f"image {3 - behind} on the background of image {behind}"
        if one_thing:
            return _of_thing(kept, shapes[0], f"from {pictures}")
        return f"the object from {pictures}" if THING in told and not shapes else pictures
    if not one_thing:
        return ""
    there = _source(kept, shapes[0])
    return f"add {_of_thing(kept, shapes[0], f'from image {there} to image {3 - there}')}"


def _numbered(item: Item) -> Item:
    """`the first` is a picture, too."""
    return Item(PICTURE, item.value) if item.code == ORDINAL else item


def _behind(row: Sequence[Item]) -> int:
    """The number of the picture whose background is meant; 0: nothing is said of one."""
    told = codes(row)
    match = re.search("B[wfo,]*I", told) or re.search("I[i,]*B", told)
    return next((_number(item) for item in row[slice(*match.span())] if item.code == PICTURE), 0) if match else 0


def _source(row: Sequence[Item], thing: int) -> int:
    """The picture that the thing is said to be `from`, else the one named right before it, else the next one."""
    told = codes(row)
    if match := re.search("fI", told):
        return _number(row[match.start() + 1])
    if match := re.search("I[i,]*[CZ]*$", told[:thing]):
        return _number(row[match.start()])
    after = told.find(PICTURE, thing)
    if after < 0:
        return 3 - _number(row[told.index(PICTURE)])
    number = _number(row[after])
    return 3 - number if told[thing + 1] == "t" else number


def _of_thing(row: Sequence[Item], thing: int, pictures: str) -> str:
    """Which it is, `pictures`, where it goes, and what else becomes of it."""
    begin = thing
    while begin > 0 and row[begin - 1].code in (COLOUR, SIZE):
        begin -= 1
    colour = next((str(item.value) for item in row[begin:thing] if item.code == COLOUR), "")
    subject = Subject(str(row[thing].value), colour)
    others = [item for item in (*row[thing + 1 :], *row[:begin]) if item.code in (COLOUR, SIZE, PLACE)]
    place = next((str(item.value) for item in others if item.code == PLACE), "")
    plain = replace(subject, colour="").said()
    changes = [f"make {plain} {item.value}" for item in others if item.code != PLACE]
    return " and ".join((f"{subject.said()} {pictures} {at(place)}".rstrip(), *changes))


def _number(item: Item) -> int:
    return int(item.value)
