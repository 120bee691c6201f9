"""Finds in a prompt what is behind everything: a colour, or two of them in a pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from deployments.wording.items import COLOUR, LEFT, PLACE, RIGHT, STOP, STRIPED, WAY, Item, codes
from deployments.wording.thing import with_article

Pattern: TypeAlias = Literal["plain", "striped", "checkered", "dotted", "across", "down"]


@dataclass(frozen=True, slots=True)
class Backdrop:
    colour: str
    pattern: Pattern = "plain"
    second: str = ""
    """Of the two colours of anything but a plain one."""

    @property
    def colours(self) -> tuple[str, ...]:
        return (self.colour, self.second) if self.second else (self.colour,)

    def said(self) -> str:
        match self.pattern:
            case "plain":
                told = f"{self.colour} background"
            case "across" | "down":
                way = "from left to right" if self.pattern == "across" else "from top to bottom"
                told = f"gradient background from {self.colour} to {self.second} {way}"
            case "dotted":
                told = f"{self.colour} background with {self.second} dots"
            case _:
                told = f"{self.colour} and {self.second} {self.pattern} background"
        return with_article(told)


_PAIR: Final = "C[&,o]?C"
_ENDS: Final = "f?(?:CP+tCP?|CtC)"
"""Of a gradient: from a colour here to another one there."""

# By kind, the first that is found; each has as many colours as its kind. `items.py` has the letters.
_FORMS: Final = [
    (kind, re.compile(form))
    for kind, form in (
        ("gradient", f"[ow]?B?[w,]?W?G[B,]*W?,*(?:{_ENDS}|{_PAIR}),?W?B?"),
        ("gradient", f"[ow]?W?(?:{_ENDS}|{_PAIR})W?G,?W?B?"),
        ("gradient", "[ow]?B?,?f?CtC,?W"),
        ("gradient", f"[ow]?B[w,]?W?{_ENDS}W?"),
        ("gradient", "[ow]?W?f?CPtCPB?"),
        ("gradient", "[ow]?[B,]*G[B,]*PC[,&]PC"),
        ("dotted", "[ow]?[B,]*D[B,]*C[&w]+CD*B?"),
        ("dotted", "[ow]?B[w,]?CB?[&w]+CD"),
        ("dotted", "[ow]?CB?[&w,]+CD+B?"),
        ("dotted", "[ow]?CB?,?[wo&]?D,?CB?(?![SZ])"),
        ("dots on it", "[ow]?CD[ow]B?CB?"),
        ("dotted", f"[ow]?[B,]*D[B,]*{_PAIR}B?"),
        ("dotted", f"[ow]?{_PAIR}D+B?"),
        ("squares", f"[ow]?B[w,o&t]*{_PAIR}[TK]"),
        ("squares", f"[ow]?{_PAIR}[TK]+B?"),
        ("squares", f"[ow]?[B,w]*[TK][B,w]*{_PAIR}B?"),
        ("squares", "[ow]?C[TK]B?[w&,]C"),
        ("plain", "[ow]?CB(?!,?C(?:[,&w]|$))"),
        ("plain", "(?:o|[ow]?B[,t&w]?)C(?=(?:Z*CZ*S|SZ*C))"),
        ("plain", "[ow]?B[,t&w]?a?C(?![SZ])"),
        ("plain", "[ow]?CB"),
        ("plain", "[ow&]?Ch"),
        ("plain", "h,?C(?![SZ])"),
        ("plain", "oC(?![SZ&])"),
        ("plain", "oCI?$"),
        ("plain", "CI"),
    )
]


def found(row: Sequence[Item]) -> tuple[Backdrop | None, list[Item]]:
    """What is behind everything, or None, and the other items, with a stop where that was said."""
    told = codes(row)
    for kind, form in _FORMS:
        if match := form.search(told):
            begin, end = match.span()
            return _read(kind, row[begin:end]), [*row[:begin], Item(STOP), *row[end:]]
    return None, list(row)


def _read(kind: str, inside: Sequence[Item]) -> Backdrop:
    first, *more = (str(item.value) for item in inside if item.code == COLOUR)
    second = more[0] if more else ""
    match kind:
        case "plain":
            return Backdrop(first)
        case "gradient":
            return _gradient(inside, first, second)
        case "dotted":
            return Backdrop(first, "dotted", second)
        case "dots on it":
            return Backdrop(second, "dotted", first)
        case _:
            return Backdrop(first, "striped" if any(item.code == STRIPED for item in inside) else "checkered", second)


def _gradient(inside: Sequence[Item], first: str, second: str) -> Backdrop:
    """Downwards, unless something else is said."""
    ways = [str(item.value) for item in inside if item.code == WAY]
    sides = [str(item.value) for item in inside if item.code == PLACE]
    if ways:
        back, way = ways[0].startswith("-"), ways[0].removeprefix("-")
    else:
        back = sides[:1] in (["right"], ["bottom"])
        way = "across" if set(sides) & {LEFT, RIGHT} else "down"
    pattern: Pattern = "across" if way == "across" else "down"
    return Backdrop(second, pattern, first) if back else Backdrop(first, pattern, second)
