"""What an expression of PromQL asks for: read word by word, no more of it than names and labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

_TOKEN: Final = re.compile(
    r"(?P<text>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')"
    r"|(?P<range>\[[^\]]*\])"
    r"|(?P<number>\d+(?:\.\d+)?(?:ms|[smhdwy])?)"
    r"|(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)"
    r"|(?P<sign>[=!<>~]+|[^\s])"
)
_WITH_LABELS: Final = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_AGGREGATED: Final = {"by", "without"}
_WORDS: Final = {"and", "or", "unless", "bool", "offset", "inf", "nan", "atan2"}
_MADE: Final = {"label_replace", "label_join"}


@dataclass(slots=True)
class Asked:
    metrics: dict[str, set[str]] = field(default_factory=dict)
    """Each with the labels that its matchers name."""
    labels: set[str] = field(default_factory=set)
    """That results are grouped, or matched, by."""
    made: set[str] = field(default_factory=set)
    """That a function adds."""


def asked(expression: str) -> Asked:
    """Raises ValueError for what is not closed."""
    found, tokens = Asked(), [(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(expression)]
    place = 0
    while place < len(tokens):
        kind, text = tokens[place]
        following = tokens[place + 1][1] if place + 1 < len(tokens) else ""
        place += 1
        if kind != "name" or text in _WORDS or following in _AGGREGATED:
            continue
        if text in _WITH_LABELS and following == "(":
            end = _closing(tokens, place, ")")
            found.labels |= {text for kind, text in tokens[place:end] if kind == "name"}
            place = end
        elif following == "(":
            if text in _MADE:
                found.made.add(_second_argument(tokens, place))
        else:
            end = _closing(tokens, place, "}") if following == "{" else place
            found.metrics.setdefault(text, set()).update(_matched(tokens[place:end]))
            place = end
    return found


def _second_argument(tokens: list[tuple[str, str]], place: int) -> str:
    depth = 0
    for (_, sign), (_, text) in pairwise(tokens[place:]):
        depth += (sign in "({") - (sign in ")}")
        if depth == 1 and sign == ",":
            return text.strip("\"'")
    raise ValueError("a function that makes a label must name it")


def _matched(tokens: list[tuple[str, str]]) -> Iterator[str]:
    return (text for kind, text in tokens if kind == "name")


def _closing(tokens: list[tuple[str, str]], place: int, sign: str) -> int:
    for end in range(place, len(tokens)):
        if tokens[end][1] == sign:
            return end
    raise ValueError(f"no {sign} behind {tokens[place][1]}")
