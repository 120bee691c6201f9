"""How a request speaks of a thing that a picture has, and how a checkpoint learnt to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from deployments.wording.items import (
    ABOVE,
    ALL,
    BELOW,
    BOTTOM,
    COLOUR,
    COUNT,
    IT,
    PLACE,
    SHAPE,
    SIZE,
    THE,
    THING,
    TOP,
    A,
    Item,
    codes,
    said,
)
from deployments.wording.thing import Thing, at

_ONE: Final = re.compile("(?<=e[CZ])a(?!Z*C?S)|(?<=e)a(?=P(?![CZ]*S))|(?<=e)a([_^])i?(?![CZS])")
"""`the red one`, `the one on the left`, `the one below it`."""
_BESIDE: Final = re.compile("([_^n])t?$")
"""`above the star`, `next to the star`: where a thing is, said by another one."""
_PLACES: Final = {ABOVE: TOP, BELOW: BOTTOM}


@dataclass(frozen=True, slots=True)
class Subject:
    """Without anything it is `it`: the only thing there is."""

    shape: str = ""
    colour: str = ""
    place: str = ""
    both: bool = False

    def said(self) -> str:
        if self == Subject():
            return "it"
        named = self.shape or "thing"
        if self.both:
            return f"both {named}"
        return f"the {self.colour} {named}" if self.colour else f"the {named} {at(self.place)}".rstrip()


@dataclass(frozen=True, slots=True)
class Mention:
    """`thing` has what is said before its name, `after` is what follows, up to the next mention."""

    thing: Thing
    definite: bool
    indefinite: bool
    both: bool
    unnamed: bool
    """`the thing`, `the one`."""
    after: tuple[Item, ...]

    @property
    def of_before(self) -> bool:
        """Whether it is `it`, or a thing without anything: what was spoken of before."""
        told = self.thing.shape or self.thing.place or self.both or (self.definite and self.thing.colour)
        return not told

    @property
    def subject(self) -> Subject:
        return Subject(self.thing.shape, self.thing.colour, self.thing.place, self.both)


def mentions(part: Sequence[Item]) -> list[Mention]:
    """In order. `the left one`, `the red one` and `both` are some, where no shape is named; a place in front of all is
    said of the first."""
    told = codes(part)
    # `change the shape of it` is about the shape, `turn the thing on the left` about a thing.
    form = "[eabN]*[CZP]*S|[ea]q(?=P)|eCq|i" if SHAPE in told else "[eab]*[CZP]*q|Pa|i|b"
    spans = [match.span() for match in re.finditer(form, told)]
    untils = [*(begin for begin, _ in spans[1:]), len(part)]
    found = [_mention(part[begin:end], part[end:until]) for (begin, end), until in zip(spans, untils, strict=False)]
    if found:
        leading = (item for item in part[: spans[0][0]] if item.code == PLACE)
        found[0] = replace(found[0], after=(*found[0].after, *leading))
    return _by_themselves(found)


def _by_themselves(found: Sequence[Mention]) -> list[Mention]:
    """Without those that only say where another one is: `the star next to the moon`."""
    kept: list[Mention] = []
    for mention in found:
        beside = _BESIDE.search(codes(kept[-1].after)) if kept and mention.definite else None
        if beside:
            place = [Item(PLACE, _PLACES[beside[1]])] if beside[1] in _PLACES else []
            after = (*kept[-1].after[: beside.start()], *place, *mention.after)
            kept[-1] = replace(kept[-1], after=after)
        else:
            kept.append(mention)
    return kept


def with_ones(row: Sequence[Item]) -> list[Item]:
    """The same with a thing for each `one`; the one below another is at the bottom."""
    told = codes(row)
    kept: list[Item] = []
    at = 0
    while at < len(row):
        if match := _ONE.match(told, at):
            kept.append(Item(THING, "thing"))
            if beside := match[1]:
                kept.append(Item(PLACE, _PLACES[beside]))
            at = match.end()
        else:
            kept.append(row[at])
            at += 1
    return kept


def with_place(mention: Mention) -> Mention:
    """The same, if a place follows its name: the one that is there, not one that goes there."""
    if mention.indefinite or codes(mention.after[:1]) != PLACE:
        return mention
    thing = replace(mention.thing, place=str(mention.after[0].value))
    return replace(mention, thing=thing, definite=True, after=mention.after[1:])


def _mention(name: Sequence[Item], after: Sequence[Item]) -> Mention:
    told, first = codes(name), said(name)
    attributes = (first.get(code, "") for code in (SHAPE, COLOUR, SIZE, PLACE))
    thing = Thing(*attributes, count=int(first.get(COUNT, 1)))
    begins_with_place = told.startswith(PLACE)
    return Mention(
        thing,
        definite=THE in told or IT in told or begins_with_place,
        indefinite=bool({A, COUNT} & set(told)) and THE not in told and not begins_with_place,
        both=ALL in told or THE + COUNT in told,
        unnamed=THING in told,
        after=tuple(after),
    )
