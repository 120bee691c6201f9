"""Descriptions of a new image: parsed in any order, from keywords, lists or counts, and rewritten as one sentence.

Every thing gets a position. Invented is only what must be chosen: positions of things without one, colours that aren't
named, and the background of a white thing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from deployments.bundled.grammar.items import Item, first_values, letters, remove
from deployments.bundled.grammar.words import COLOURS, SHAPES

_MAX_OBJECTS: Final = 5
_SPREAD: Final = (
    (),
    ("center",),
    ("left", "right"),
    ("top", "bottom left", "bottom right"),
    ("top left", "top right", "bottom left", "bottom right"),
    ("top left", "top right", "center", "bottom left", "bottom right"),
)
"""Default positions by number of things."""
_POSITIONS: Final = ("top", "left", "right", "bottom", *_SPREAD[4])
_RELATED: Final = {"^": ("top", "bottom"), "o": ("top", "bottom"), "_": ("bottom", "top")}
"""Positions of the things before and after a preposition."""
_ABSENT: Final = re.compile("[0!][^,&k]*|x[CZN]*S[^,&kw]*")
"""Things that aren't there: `nothing on it`, `no moon`."""


@dataclass(frozen=True, slots=True)
class SceneObject:
    """A thing in an image; details that aren't given are empty."""

    shape: str = ""
    colour: str = ""
    size: str = ""
    position: str = ""
    count: int = 1

    @classmethod
    def from_items(cls, row: Sequence[Item]) -> SceneObject:
        values = first_values(row)
        return cls(*(values.get(letter, "") for letter in "SCZP"), count=int(values.get("N", 1)))

    def describe(self) -> str:
        """Returns `a small red star`: without the position, and without the size if that is medium."""
        size = "" if self.size == "medium" else self.size
        return with_article(" ".join(filter(None, (size, self.colour, self.shape))))

    def with_more(self, more: SceneObject) -> SceneObject:
        """Adds details of `more` that are missing here."""
        details = (self.colour or more.colour, self.size or more.size, self.position or more.position)
        return SceneObject(self.shape, *details, max(self.count, more.count))

    def may_equal(self, other: SceneObject) -> bool:
        pairs = ((self.colour, other.colour), (self.size, other.size), (self.position, other.position))
        counted = self.count > 1 and other.count > 1
        return self.shape == other.shape and not counted and not any(one and two for one, two in pairs)


@dataclass(frozen=True, slots=True)
class Background:
    colour: str
    pattern: str = "plain"
    second: str = ""

    def describe(self) -> str:
        if self.pattern == "plain":
            return with_article(f"{self.colour} background")
        if self.pattern in ("across", "down"):
            way = "from left to right" if self.pattern == "across" else "from top to bottom"
            return f"a gradient background from {self.colour} to {self.second} {way}"
        if self.pattern == "dotted":
            return with_article(f"{self.colour} background with {self.second} dots")
        return with_article(f"{self.colour} and {self.second} {self.pattern} background")


@dataclass(frozen=True, slots=True)
class Scene:
    things: tuple[SceneObject, ...]
    background: Background | None

    def describe(self) -> str:
        things = [f"{thing.describe()} {locative(thing.position)}" for thing in self.things]
        if len(things) == 1 and self.things[0].position == "center":
            things = [self.things[0].describe()]
        names = " and ".join(filter(None, (", ".join(things[:-1]), *things[-1:])))
        return " on ".join(filter(None, (names, self.background.describe() if self.background else "")))


def read(row: Sequence[Item]) -> Scene | None:
    """Returns None if nothing visible is described."""
    background, remaining = find_background([item for item in row if item.letter not in "aei."])
    present = remove(remaining, _ABSENT)
    things = [] if "0" in letters(remaining) and "S" not in letters(present) else _things(present)
    return _complete(things, background) if things or background else None


def locative(position: str) -> str:
    """Returns `in the top left`, `on the right`; empty for no position."""
    preposition = "on" if position in ("left", "right") else "at" if position in ("top", "bottom") else "in"
    return f"{preposition} the {position}" if position else ""


def with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def assign_positions(mentions: Sequence[SceneObject]) -> list[SceneObject]:
    """Splits counted things into single ones with a position each: at most five, which are small then.

    Things with the same position are put side by side, as far as there is room.
    """
    things = [replace(thing, count=1) for thing in mentions for _ in range(thing.count)][:_MAX_OBJECTS]
    if len(things) == _MAX_OBJECTS:
        things = [replace(thing, size="small") for thing in things]
    taken: list[str] = []
    for thing in things:
        sides = set(thing.position.split())
        near = [other for other in _POSITIONS if set(other.split()) & sides] or ["left", "right"]
        free = (position for position in (thing.position, *near) if position not in taken)
        taken.append(next(free, "") if thing.position else "")
    spread = iter([position for position in _SPREAD[len(things)] if position not in taken])
    return [replace(thing, position=position or next(spread)) for thing, position in zip(things, taken, strict=True)]


def _complete(mentions: Sequence[SceneObject], background: Background | None) -> Scene:
    """Adds positions, colours and a background where they are missing."""
    things = assign_positions(mentions)
    taken = {thing.colour for thing in things}
    if background is None and "white" in taken:
        contrasts = ("black", "gray", "dark blue", *COLOURS)
        background = Background(next(colour for colour in contrasts if colour not in taken))
    if len(things) == 1 and things[0] == SceneObject(things[0].shape, position="center") and background is None:
        return Scene(tuple(things), None)  # the seed decides the colour
    taken |= {background.colour, background.second} if background else {"white"}
    taken -= {""}
    spare = iter([new for new in COLOURS if not any(new in colour or colour in new for colour in taken)])
    colours: dict[str, str] = {}
    for index, thing in enumerate(things):
        if not thing.colour:  # equal shapes get the same colour, which nothing else has
            colour = colours.get(thing.shape) or next(spare, "")
            colours[thing.shape] = colour
            things[index] = replace(thing, colour=colour)
    return Scene(tuple(things), background)


def _things(row: Sequence[Item]) -> list[SceneObject]:
    """Returns all things mentioned, in order. A colour or position without any shape gets the first known shape."""
    mentions: list[SceneObject] = []
    current, waiting, announced = -1, list[Item](), 0
    for part, before in _parts(row):
        if "S" not in letters(part):
            more = SceneObject.from_items(part)
            if "b" in letters(part):
                mentions = [thing.with_more(more) for thing in mentions]
            elif not mentions or (letters(part) == "P" and mentions[current].position):
                waiting += part
            else:
                mentions[current] = mentions[current].with_more(more)
            continue
        for item in _split_things(part):
            if letters(waiting) == "C" and "C" in letters(item):  # a red and a blue star
                mentions.append(replace(SceneObject.from_items(item), colour=waiting.pop().value))
            if letters(waiting) == "N":  # only two: a star, a moon
                announced = int(waiting[0].value)
            thing, waiting = SceneObject.from_items([*waiting, *item]), []
            current = next((index for index, other in enumerate(mentions) if thing.may_equal(other)), len(mentions))
            if current < len(mentions):  # ..., the star is red
                mentions[current] = mentions[current].with_more(thing)
            else:
                mentions.append(thing)
                if len(mentions) > 1 and before in _RELATED and not (mentions[-2].position or thing.position):
                    pairs = zip(mentions[-2:], _RELATED[before], strict=True)
                    mentions[-2:] = [replace(related, position=position) for related, position in pairs]
            before = ","
    if not mentions and set("CZPN") & set(letters(waiting)):
        mentions.append(replace(SceneObject.from_items(waiting), shape=SHAPES[0]))
    return [replace(thing, count=1) for thing in mentions] if announced == len(mentions) else mentions


def _parts(row: Sequence[Item]) -> Iterator[tuple[list[Item], str]]:
    """Splits at stops and words like `and` or `both`, and yields the separator before each part."""
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


def _split_things(part: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Splits a part into things: colours and sizes come before all of its shapes, or after all of them."""
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
"""Expressions by kind of background, of which the first match counts; each has as many colours as its kind."""


def find_background(row: Sequence[Item]) -> tuple[Background | None, list[Item]]:
    """Returns the background, or None, and the other items, with a stop in its place."""
    for kind, form in _FORMS:
        if match := re.search(form, letters(row)):
            inside = row[slice(*match.span())]
            colour, second = [*(item.value for item in inside if item.letter == "C"), ""][:2]
            pattern, swap = kind, kind == "dots on it"
            if kind == "gradient":  # downwards by default
                values = first_values(inside)
                way, position = values.get("W", ""), values.get("P", "")
                swap = way.startswith("-") or (not way and position in ("right", "bottom"))
                pattern = "across" if "across" in way or (not way and position in ("left", "right")) else "down"
            elif kind == "squares":
                pattern = "striped" if "T" in letters(inside) else "checkered"
            elif swap:
                pattern = "dotted"
            colours = (second, colour) if swap else (colour, second)
            background = Background(colour) if kind == "plain" else Background(colours[0], pattern, colours[1])
            return background, [*row[: match.start()], Item(","), *row[match.end() :]]
    return None, list(row)
