"""How two pictures become one: a thing of one in the other, or in front of what is behind the other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from deployments.wording.items import (
    AND,
    BACKGROUND,
    CHECKERED,
    COLOUR,
    COLOURING,
    COUNT,
    DOTTED,
    FROM,
    GRADIENT,
    ON,
    ORDINAL,
    OTHER,
    PICTURE,
    PLACE,
    SHAPE,
    SIZE,
    STOP,
    STRIPED,
    THE,
    THING,
    TO,
    A,
    Item,
    codes,
)
from deployments.wording.mention import Subject, with_ones
from deployments.wording.thing import at

_IDLE: Final = frozenset({OTHER, THE, A, AND, COLOURING})
_AFTER_A_NUMBER: Final = frozenset({STOP, AND, ON, TO, PLACE})
_PATTERNS: Final = frozenset({STRIPED, CHECKERED, DOTTED, GRADIENT})


def read(row: Sequence[Item]) -> str:
    """Empty where it isn't said what comes from which picture."""
    kept = [item for item in map(_plain, _numbered(with_ones(row))) if item.code not in _IDLE]
    kept = [item for item in kept if item.code != PICTURE or item.value in (1, 2)]
    if BACKGROUND in codes(kept):  # the striped background
        kept = [item for item in kept if item.code not in _PATTERNS]
    else:  # the heart from image 1 on the stripes of image 2
        kept = [Item(BACKGROUND) if item.code in _PATTERNS else item for item in kept]
    told = codes(kept)
    if PICTURE not in told:
        return ""
    shapes = [index for index, item in enumerate(kept) if item.code == SHAPE]
    if not shapes:  # the red one, the one in the middle
        shapes = [match.start() for match in re.finditer("(?<=[CZ])q|q(?=Pf?I)", told)]
    one_thing = len({kept[index].value for index in shapes}) == 1 and COUNT not in told
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


def _numbered(row: Sequence[Item]) -> list[Item]:
    """With pictures for the numbers in `the circle from 1`, and without the one of `the two pictures`."""
    kept: list[Item] = []
    for item, after in pairwise([*row, Item(STOP)]):
        of = bool(kept) and (kept[-1].code == FROM or kept[-1].value == "of")
        if of and item.code in (A, COUNT) and after.code in _AFTER_A_NUMBER:
            kept.append(Item(PICTURE, 1 if item.code == A else item.value))
        elif item.code != COUNT or after.code != PICTURE:
            kept.append(item)
    return kept


def _plain(item: Item) -> Item:
    """`the first` is a picture, too, and what is `of` one is from there."""
    if item.code == ORDINAL:
        return Item(PICTURE, item.value)
    return Item(FROM) if item.value == "of" else item


def _behind(row: Sequence[Item]) -> int:
    """The number of the picture whose background is meant; 0: nothing is said of one."""
    told = codes(row)
    replaced = re.search("u(?:BfI|IB)", told)
    match = replaced or re.search("B[wfo,]+I", told) or re.search("I[i,]*B|BI", told)
    number = next((_number(item) for item in row[slice(*match.span())] if item.code == PICTURE), 0) if match else 0
    return 3 - number if replaced else number


def _source(row: Sequence[Item], thing: int) -> int:
    """The picture that is named right before the thing, unless it is said to be from another one, else the next one."""
    told = codes(row)
    if told[thing + 1 : thing + 3] == FROM + PICTURE:
        return _number(row[thing + 2])
    if match := re.search("I[i,]*[CZ]*$", told[:thing]):
        return _number(row[match.start()])
    if match := re.search("(?<!P)fI|SPfI", told):
        return _number(row[match.end() - 1])
    if told.count(PICTURE) == 1 and (match := re.search("PfI", told)):  # in the middle of image 2
        return 3 - _number(row[match.end() - 1])
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
    end = thing + 1
    there = ""
    # The star on the left from image 2; not image 2's star, to the left of image 1.
    if codes(row[end : end + 3]) == PLACE + FROM + PICTURE and PICTURE not in codes(row[:begin]):
        there, end = str(row[end].value), end + 1
    shape = str(row[thing].value) if row[thing].code == SHAPE else ""
    subject = Subject(shape, colour, there)
    others = [item for item in (*row[end:], *row[:begin]) if item.code in (COLOUR, SIZE, PLACE)]
    place = next((str(item.value) for item in others if item.code == PLACE), "")
    plain = Subject(subject.shape).said()
    changes = [f"make {plain} {item.value}" for item in others if item.code != PLACE]
    return " and ".join((f"{subject.said()} {pictures} {at(place)}".rstrip(), *changes))


def _number(item: Item) -> int:
    return int(item.value)
