"""What the words of a prompt are, one by one: colours, shapes, places, and what stands between them.

Items are told apart by single characters, so that what is looked for in a row of them can be written as an expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from deployments.contract.words import Words

# Of things and backgrounds; upper case.
COLOUR, SHAPE, SIZE, PLACE, COUNT, ORDINAL, PICTURE = "C", "S", "Z", "P", "N", "R", "I"
BACKGROUND, STRIPED, CHECKERED, DOTTED, GRADIENT, WAY = "B", "T", "K", "D", "G", "W"
# Of what is done; a second request begins with one of `VERBS`.
ADD, REMOVE, TURN, MAKE, PUT, COLOURING, ENLARGE, SHRINK = "+", "x", "u", "m", "v", "r", "g", "l"
BIGGER, SMALLER = ">", "<"
VERBS: Final = frozenset({ADD, REMOVE, TURN, MAKE, PUT, COLOURING, ENLARGE, SHRINK})
# Of what stands between them.
STOP, AND, WITH, ON, ABOVE, BELOW, BESIDE = ",", "&", "w", "o", "^", "_", "n"
BEHIND, FROM, TO, THE, A, IT, THING, ALL, ONLY = "h", "f", "t", "e", "a", "i", "q", "b", "k"
NOTHING, NOT, INSTEAD, OTHER = "0", "!", "=", "."

LEFT, RIGHT, TOP, BOTTOM, CENTER = "left", "right", "top", "bottom", "center"

_WORDS: Final[Mapping[str, Sequence[str]]] = {
    PICTURE: ["image", "picture"],
    BACKGROUND: ["background"],
    STRIPED: ["striped", "stripes"],
    CHECKERED: ["checkered"],
    DOTTED: ["dotted", "dots"],
    GRADIENT: ["gradient"],
    ADD: ["add", "draw"],
    REMOVE: ["remove", "delete", "erase", "take", "rid", "without", "no"],
    TURN: ["turn", "change", "transform", "replace"],
    MAKE: ["make"],
    PUT: ["put", "move", "place"],
    COLOURING: ["paint", "recolor", "color"],
    ENLARGE: ["enlarge", "grow"],
    SHRINK: ["shrink", "reduce"],
    BIGGER: ["bigger"],
    SMALLER: ["smaller"],
    STOP: [","],
    AND: ["and"],
    WITH: ["with"],
    ON: ["on", "against", "over"],
    ABOVE: ["above"],
    BELOW: ["below", "under"],
    BESIDE: ["next"],
    BEHIND: ["behind"],
    FROM: ["from"],
    TO: ["to", "into"],
    THE: ["the"],
    A: ["a", "an"],
    IT: ["it"],
    THING: ["thing", "shape", "object"],
    ALL: ["both", "everything"],
    ONLY: ["but", "only"],
    NOTHING: ["nothing", "empty"],
    NOT: ["not"],
    INSTEAD: ["instead"],
}
_CODES: Final = {word: code for code, words in _WORDS.items() for word in words}
_COUNTS: Final = {"two": 2, "three": 3, "four": 4, "five": 5}
_ORDINALS: Final = {"first": 1, "second": 2}
_NUMBERED: Final = {"1": 1, "2": 2, "3": 3, "a": 1, "two": 2, "three": 3}
"""Pictures: `image 1`, which is `image a` once words are known ones."""

_SIDES: Final = frozenset({LEFT, RIGHT, TOP, BOTTOM, CENTER})
_AXES: Final = ((TOP, BOTTOM), (LEFT, RIGHT))
_BEFORE_A_PLACE: Final = frozenset({"in", "on", "at", "to", "the", "up", "down", "over"})
_UP_AND_DOWN: Final = {"up": TOP, "down": BOTTOM}
_AFTER_A_PLACE: Final = frozenset({"side", "corner", "edge"})
_BEFORE_A_WAY: Final = frozenset({"from", "on", "a", "the"})
_WAYS: Final = {(LEFT, RIGHT): "across", (RIGHT, LEFT): "-across", (TOP, BOTTOM): "down", (BOTTOM, TOP): "-down"}


@dataclass(frozen=True, slots=True)
class Item:
    """`value` is the name that the words have for it, a number, or the word itself.

    Of a place that is `top left` or the like, of a way one of `_WAYS`, of a picture its number or `image`.
    """

    code: str
    value: str | int = ""


def items(pieces: Sequence[str], words: Words) -> list[Item]:
    """Of `Words.pieces`."""
    return list(_items(pieces, words))


def codes(row: Iterable[Item]) -> str:
    return "".join(item.code for item in row)


def said(row: Iterable[Item]) -> Mapping[str, str]:
    """By codes, what is said first."""
    return {item.code: str(item.value) for item in reversed(list(row))}


def _items(pieces: Sequence[str], words: Words) -> Iterator[Item]:
    kinds = ((COLOUR, words.colours), (SHAPE, words.shapes), (SIZE, words.sizes))
    names = {name: Item(code, name) for code, known in kinds for name in known}
    at = 0
    while at < len(pieces):
        item, length = _way(pieces, at) or _place(pieces, at) or _picture(pieces, at) or _named(pieces, at, names)
        yield item
        at += length


def _way(pieces: Sequence[str], at: int) -> tuple[Item, int] | None:
    """`from left to right`."""
    begin = at
    while at < len(pieces) and pieces[at] in _BEFORE_A_WAY:
        at += 1
    rest = [piece for piece in pieces[at : at + 5] if piece != "the"]
    if len(rest) < 3 or rest[1] != "to" or (rest[0], rest[2]) not in _WAYS:
        return None
    length = len(pieces[at : at + 5]) if "the" in pieces[at : at + 3] else 3
    return Item(WAY, _WAYS[rest[0], rest[2]]), at + length - begin


def _place(pieces: Sequence[str], at: int) -> tuple[Item, int] | None:
    """`in the top left corner`, `at the top on the right`, `up`."""
    begin = end = at
    sides: list[str] = []
    while at < len(pieces):
        piece = pieces[at]
        if piece in _SIDES and _go_together({*sides, piece}):
            sides.append(piece)
            end = at + 1
        elif sides and end == at and piece in _AFTER_A_PLACE:
            end = at + 1
        elif piece not in _BEFORE_A_PLACE or (sides and piece == "to"):
            break
        at += 1
    if at == begin + 1 and pieces[begin] in _UP_AND_DOWN and pieces[at : at + 1] != ["from"]:
        sides, end = [_UP_AND_DOWN[pieces[begin]]], at
    if not sides:
        return None
    named = [side for axis in _AXES for side in axis if side in sides]
    return Item(PLACE, " ".join(named) or CENTER), end - begin


def _go_together(sides: Set[str]) -> bool:
    """One of each axis at most; the center goes with any."""
    return all(len(sides & set(axis)) < 2 for axis in _AXES)


def _picture(pieces: Sequence[str], at: int) -> tuple[Item, int] | None:
    """`image 1`, `the second image`."""
    begin = at
    at += pieces[at] == "the"
    first, second = [*pieces[at : at + 2], "", ""][:2]
    if first in _WORDS[PICTURE] and second in _NUMBERED:
        return Item(PICTURE, _NUMBERED[second]), at + 2 - begin
    if first in _ORDINALS and second in _WORDS[PICTURE]:
        return Item(PICTURE, _ORDINALS[first]), at + 2 - begin
    return None


def _named(pieces: Sequence[str], at: int, names: Mapping[str, Item]) -> tuple[Item, int]:
    piece, pair = pieces[at], " ".join(pieces[at : at + 2])
    if pair in names:
        return names[pair], 2
    if [*pieces[at : at + 3]] == ["in", "front", "of"]:
        return Item(ON), 3
    if piece in _COUNTS:
        return Item(COUNT, _COUNTS[piece]), 1
    if piece in _ORDINALS:
        return Item(ORDINAL, _ORDINALS[piece]), 1
    return names.get(piece) or Item(_CODES.get(piece, OTHER), piece), 1
