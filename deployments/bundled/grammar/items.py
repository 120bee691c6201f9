"""Items of a prompt: each word or phrase as a letter, so that regular expressions match rows of them.

C colour  S shape  Z size  P place  N count  R first, second  I image  B background  T striped  K checkered
D dotted  G gradient  W way of a gradient  h behind  o on  w with  & and  , stop  ^ above  _ below  n next to
f from  t to  e the  a a  i it  q thing  b both  k only  0 nothing  ! not  = instead  . anything else
+ add  x remove  u turn  m make  v put  r paint  g enlarge  l shrink  > bigger  < smaller
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from deployments.bundled.grammar.words import COLOURS, SHAPES, SIZES

_WORDS: Final = (
    "I image picture|B background|T striped stripes|K checkered|D dotted dots|G gradient|h behind|o on against over"
    "|w with|& and|, ,|^ above|_ below under|n next|f from|t to into|e the|a a an|i it|q thing shape object"
    "|b both everything|k but only|0 nothing empty|! not|= instead|+ add draw|x remove delete erase take rid without no"
    "|u turn change transform replace|m make|v put move place|r paint recolor color|> bigger|< smaller|g enlarge grow"
    "|l shrink reduce"
)
_LETTERS: Final = {word: entry[0] for entry in _WORDS.split("|") for word in entry[2:].split()}
_NUMBERS: Final = {"two": "2", "three": "3", "four": "4", "five": "5", "first": "1", "second": "2", "a": "1"}
_WAYS: Final = {("left", "right"): "across", ("right", "left"): "-across", ("bottom", "top"): "-down"}

_BEFORE, _SIDE = "(?:(?:in|on|at|to|the|up|down|over) )*", "(?:left|right|top|bottom|center)"
_BETWEEN: Final = "(?: (?:in|on|at|the|up|down|over|side|corner|edge))* "
_UP, _ACROSS = "(?:top|bottom|center)", "(?:left|right|center)"
_ITEM: Final = re.compile(
    rf"(?<!\S)(?:(?P<W>(?:(?:from|on|a|the) )*{_SIDE} to (?:the )?{_SIDE})"
    rf"|(?P<P>{_BEFORE}(?:{_UP}{_BETWEEN}{_ACROSS}|{_ACROSS}{_BETWEEN}{_UP}|{_SIDE})(?: (?:side|corner|edge))*"
    r"|(?:up|down)(?! from))"
    r"|(?P<I>(?:the )?(?:(?:image|picture) (?:[123a]|two|three)|(?:first|second) (?:image|picture)))"
    rf"|(?P<C>{'|'.join(sorted(COLOURS, key=len, reverse=True))})|(?P<S>{'|'.join(SHAPES)})|(?P<Z>{'|'.join(SIZES)})"
    r"|(?P<N>two|three|four|five)|(?P<R>first|second)|(?P<o>in front of)|(?P<other>\S+))(?!\S)"
)


class Item(NamedTuple):
    """A letter with its value: the name of a colour, shape, size, position or way, a number, or the word itself."""

    letter: str
    value: str = ""


def parse(pieces: Sequence[str]) -> list[Item]:
    return [_item(match.lastgroup or "", match[0]) for match in _ITEM.finditer(" ".join(pieces))]


def letters(row: Iterable[Item]) -> str:
    return "".join(item.letter for item in row)


def first_values(row: Iterable[Item]) -> Mapping[str, str]:
    """Returns the value of the first item of each letter."""
    return {item.letter: item.value for item in reversed(list(row))}


def remove(row: Sequence[Item], form: re.Pattern[str]) -> list[Item]:
    remaining = form.sub(lambda match: " " * len(match[0]), letters(row))
    return [item for item, letter in zip(row, remaining, strict=True) if letter != " "]


def _item(group: str, text: str) -> Item:
    words = text.split()
    sides = [side for side in ("top", "bottom", "left", "right", "center") if side in words]
    match group:
        case "W":
            begin, end = (word for word in words if word in sides)
            return Item("W", _WAYS.get((begin, end), "down"))
        case "P":
            named = [side for side in sides if side != "center"] or sides
            return Item("P", " ".join(named) or ("top" if "up" in words else "bottom"))
        case "N" | "R" | "I":
            return Item(group, next(_NUMBERS.get(word, word) for word in words if word in _NUMBERS or word.isdigit()))
        case "other":
            return Item(_LETTERS.get(text, "."), text)
        case _:
            return Item(group, text)
