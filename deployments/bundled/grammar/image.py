"""What a prompt tells of an image, in any order, as keywords, as a list or by counting: said again in one sentence.

Every thing gets a place in it. Nothing is made up but what has to be chosen: where things without a place go, colours
that aren't named, and what is behind a white thing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from deployments.bundled.grammar.items import Item, first, letters, without
from deployments.bundled.grammar.words import COLOURS, SHAPES

_MOST: Final = 5
"""Things in an image."""
_SPREAD: Final = (
    (),
    ("center",),
    ("left", "right"),
    ("top", "bottom left", "bottom right"),
    ("top left", "top right", "bottom left", "bottom right"),
    ("top left", "top right", "center", "bottom left", "bottom right"),
)
"""Where so many things are, if nothing is said of it."""
_PLACES: Final = ("top", "left", "right", "bottom", *_SPREAD[4])
_RELATED: Final = {"^": ("top", "bottom"), "o": ("top", "bottom"), "_": ("bottom", "top")}
"""Where the thing before it is, and the one after it."""
_ABSENT: Final = re.compile("[0!][^,&k]*|x[CZN]*S[^,&kw]*")
"""What isn't there: `nothing on it`, `no moon`."""


@dataclass(frozen=True, slots=True)
class Thing:
    """What isn't said is empty."""

    shape: str = ""
    colour: str = ""
    size: str = ""
    place: str = ""
    count: int = 1

    @classmethod
    def of(cls, row: Sequence[Item]) -> Thing:
        said = first(row)
        return cls(*(said.get(letter, "") for letter in "SCZP"), count=int(said.get("N", 1)))

    def said(self) -> str:
        """`a small red star`, without its place; one of medium size has no size."""
        size = "" if self.size == "medium" else self.size
        return with_article(" ".join(filter(None, (size, self.colour, self.shape))))

    def with_more(self, more: Thing) -> Thing:
        """What was said first counts."""
        said = (self.colour or more.colour, self.size or more.size, self.place or more.place)
        return Thing(self.shape, *said, max(self.count, more.count))

    def may_be(self, other: Thing) -> bool:
        pairs = ((self.colour, other.colour), (self.size, other.size), (self.place, other.place))
        counted = self.count > 1 and other.count > 1
        return self.shape == other.shape and not counted and not any(one and two for one, two in pairs)


@dataclass(frozen=True, slots=True)
class Backdrop:
    colour: str
    pattern: str = "plain"
    second: str = ""

    def said(self) -> str:
        if self.pattern == "plain":
            return with_article(f"{self.colour} background")
        if self.pattern in ("across", "down"):
            way = "from left to right" if self.pattern == "across" else "from top to bottom"
            return f"a gradient background from {self.colour} to {self.second} {way}"
        if self.pattern == "dotted":
            return with_article(f"{self.colour} background with {self.second} dots")
        return with_article(f"{self.colour} and {self.second} {self.pattern} background")


@dataclass(frozen=True, slots=True)
class Image:
    things: tuple[Thing, ...]
    backdrop: Backdrop | None

    def said(self) -> str:
        things = [f"{thing.said()} {at(thing.place)}" for thing in self.things]
        if len(things) == 1 and self.things[0].place == "center":
            things = [self.things[0].said()]
        names = " and ".join(filter(None, (", ".join(things[:-1]), *things[-1:])))
        return " on ".join(filter(None, (names, self.backdrop.said() if self.backdrop else "")))


def read(row: Sequence[Item]) -> Image | None:
    """None where nothing is told that can be seen."""
    behind, rest = backdrop([item for item in row if item.letter not in "aei."])
    there = without(rest, _ABSENT)
    things = [] if "0" in letters(rest) and "S" not in letters(there) else _things(there)
    return _completed(things, behind) if things or behind else None


def at(place: str) -> str:
    """`in the top left`, `on the right`; empty for no place."""
    preposition = "on" if place in ("left", "right") else "at" if place in ("top", "bottom") else "in"
    return f"{preposition} the {place}" if place else ""


def with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def placed(mentions: Sequence[Thing]) -> list[Thing]:
    """One by one, each with a place that no other has, and five at most, which are small ones then.

    Several that are said to be in one place are there side by side, as far as there is room beside it.
    """
    each = [replace(thing, count=1) for thing in mentions for _ in range(thing.count)][:_MOST]
    if len(each) == _MOST:
        each = [replace(thing, size="small") for thing in each]
    taken: list[str] = []
    for thing in each:
        near = [other for other in _PLACES if set(other.split()) & set(thing.place.split())] or ["left", "right"]
        taken.append(next((place for place in (thing.place, *near) if place not in taken), "") if thing.place else "")
    free = iter([place for place in _SPREAD[len(each)] if place not in taken])
    return [replace(thing, place=place or next(free)) for thing, place in zip(each, taken, strict=True)]


def _completed(mentions: Sequence[Thing], behind: Backdrop | None) -> Image:
    things = placed(mentions)
    taken = {thing.colour for thing in things}
    if behind is None and "white" in taken:
        behind = Backdrop(next(colour for colour in ("black", "gray", "dark blue", *COLOURS) if colour not in taken))
    if len(things) == 1 and things[0] == Thing(things[0].shape, place="center") and behind is None:
        return Image(tuple(things), None)  # of any colour, as seeds have it
    taken |= {behind.colour, behind.second} if behind else {"white"}
    taken -= {""}
    spare = iter([new for new in COLOURS if not any(new in colour or colour in new for colour in taken)])
    chosen: dict[str, str] = {}
    for index, thing in enumerate(things):
        if not thing.colour:  # one that nothing else has; equal things have the same
            colour = chosen.get(thing.shape) or next(spare, "")
            chosen[thing.shape] = colour
            things[index] = replace(thing, colour=colour)
    return Image(tuple(things), behind)


def _things(row: Sequence[Item]) -> list[Thing]:
    """All that are mentioned, in order. What has a colour or a place, but no shape, has the first shape there is."""
    mentions: list[Thing] = []
    spoken_of, waiting, announced = -1, list[Item](), 0
    for part, before in _parts(row):
        if "S" not in letters(part):
            more = Thing.of(part)
            if "b" in letters(part):
                mentions = [thing.with_more(more) for thing in mentions]
            elif not mentions or (letters(part) == "P" and mentions[spoken_of].place):
                waiting += part
            else:
                mentions[spoken_of] = mentions[spoken_of].with_more(more)
            continue
        for one in _each(part):
            if letters(waiting) == "C" and "C" in letters(one):  # a red and a blue star
                mentions.append(replace(Thing.of(one), colour=waiting.pop().value))
            if letters(waiting) == "N":  # only two: a star, a moon
                announced = int(waiting[0].value)
            thing, waiting = Thing.of([*waiting, *one]), []
            spoken_of = next((index for index, other in enumerate(mentions) if thing.may_be(other)), len(mentions))
            if spoken_of < len(mentions):  # ..., the star is red
                mentions[spoken_of] = mentions[spoken_of].with_more(thing)
            else:
                mentions.append(thing)
                if len(mentions) > 1 and before in _RELATED and not (mentions[-2].place or thing.place):
                    pairs = zip(mentions[-2:], _RELATED[before], strict=True)
                    mentions[-2:] = [replace(related, place=place) for related, place in pairs]
            before = ","
    if not mentions and set("CZPN") & set(letters(waiting)):
        mentions.append(replace(Thing.of(waiting), shape=SHAPES[0]))
    return [replace(thing, count=1) for thing in mentions] if announced == len(mentions) else mentions


def _parts(row: Sequence[Item]) -> Iterator[tuple[list[Item], str]]:
    """What stands between stops and words like `and`, and which of these is before it. `both` begins one, too."""
    part: list[Item] = []
    before = ","
    for item in [*row, Item(",")]:
        if item.letter in ",&w^_nob":
            if part:
                yield part, before
                before = ","
            if item.letter not in "b," and (before == "," or item.letter != "&"):
                before = item.letter
            part = [item] if item.letter == "b" else []
        elif item.letter in "CSZPN":
            part.append(item)


def _each(part: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """A thing each: colours and sizes are said before all shapes of a part, or after all of them."""
    code = letters(part)
    if re.fullmatch("(P[CZN]*S){2,}", code):  # on the left a star on the right a moon
        form = "P[CZN]*S"
    elif re.match("[^S]*[CZN][^S]*S", code):
        form = "[CZNPb]*SP*"
    else:
        form = "[NPb]*S[CZP]*"
    ends = [match.end() for match in re.finditer(form, code)]
    yield from (part[begin:end] for begin, end in zip([0, *ends[:-1]], [*ends[:-1], len(part)], strict=True))


_PAIR, _ENDS = "C[&,o]?C", "f?(?:CP+tCP?|CtC)"
_FORMS: Final = (
    ("gradient", f"[ow]?B?[w,]?W?G[B,]*W?,*(?:{_ENDS}|{_PAIR}),?W?B?"),
    ("gradient", f"[ow]?W?(?:{_ENDS}|{_PAIR})W?G,?W?B?"),
    ("gradient", "[ow]?B?,?f?CtC,?W"),
    ("gradient", "[ow]?W?f?CPtCPB?"),
    ("dotted", "[ow]?CB?[&w,]+CD+B?"),
    ("dotted", "[ow]?CB?,?[wo&]?D,?CB?(?![SZ])"),
    ("dots on it", "[ow]?CD[ow]B?CB?"),
    ("squares", f"[ow]?{_PAIR}[TK]+B?"),
    ("squares", f"[ow]?[B,w]*[TK][B,w]*{_PAIR}B?"),
    ("plain", "[ow]?B[,t&w]?a?C(?![SZ])"),
    ("plain", "[ow]?CB"),
    ("plain", "[ow&]?Ch|h,?C(?![SZ])"),
    ("plain", "oC(?![SZ&])|CI"),
)
"""By kind, the first that is found; each has as many colours as its kind."""


def backdrop(row: Sequence[Item]) -> tuple[Backdrop | None, list[Item]]:
    """What is behind everything, or None, and the other items, with a stop where that was said."""
    for kind, form in _FORMS:
        if match := re.search(form, letters(row)):
            inside = row[slice(*match.span())]
            colour, second = [*(item.value for item in inside if item.letter == "C"), ""][:2]
            pattern, back = kind, kind == "dots on it"
            if kind == "gradient":  # downwards, unless something else is said
                said = first(inside)
                way, place = said.get("W", ""), said.get("P", "")
                back = way.startswith("-") or (not way and place in ("right", "bottom"))
                pattern = "across" if "across" in way or (not way and place in ("left", "right")) else "down"
            elif kind == "squares":
                pattern = "striped" if "T" in letters(inside) else "checkered"
            elif back:
                pattern = "dotted"
            colours = (second, colour) if back else (colour, second)
            behind = Backdrop(colour) if kind == "plain" else Backdrop(colours[0], pattern, colours[1])
            return behind, [*row[: match.start()], Item(","), *row[match.end() :]]
    return None, list(row)
