"""Prompts and the scenes they ask for, in a notation of its own.

A scene is `shapes / ground`. Shapes are joined by ` + `; each is `[count] [size] colour shape [@ place]`, where colour
and shape may be `any`. Grounds are `any`, `white`, `stripes red white`, `checkers red white`, `dots red white`,
`gradient red white down`, `... across`. A scene without shapes is `nothing / red`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.scenes import COLOURS, SIZES, Ground, Pattern, Shape, ShapeScene

_ANY: Final = "any"
_PATTERNS: Final[Mapping[str, Pattern]] = {
    "stripes": "striped",
    "checkers": "checkered",
    "dots": "dotted",
    "down": "vertical",
    "across": "horizontal",
}


@dataclass(frozen=True, slots=True)
class PromptCase:
    prompt: str
    references: tuple[ShapeScene, ...]
    """The input images."""
    expected: ShapeScene


def read_cases(file: Path) -> dict[str, list[PromptCase]]:
    """Returns the cases by heading. A line is `prompt | input images, if any | expected scene`."""
    sections: dict[str, list[PromptCase]] = {}
    heading: list[PromptCase] = []
    for line in filter(None, file.read_text().splitlines()):
        if line.startswith("#"):
            heading = sections.setdefault(line.removeprefix("# "), [])
        else:
            prompt, *references, expected = line.split(" | ")
            heading.append(PromptCase(prompt, tuple(map(parse_scene, references)), parse_scene(expected)))
    return sections


def parse_scene(text: str) -> ShapeScene:
    shapes, ground = text.split(" / ")
    parts = [] if shapes == "nothing" else shapes.split(" + ")
    return ShapeScene(tuple(shape for part in parts for shape in _shapes(part)), _ground(ground))


def _shapes(text: str) -> list[Shape]:
    description, _, place = text.partition(" @ ")
    *words, shape = description.split()
    count = int(words.pop(0)) if words[0].isdigit() else 1
    size = words.pop(0) if words[0] in SIZES else None
    [colour] = _colours(words)
    return [Shape(None if shape == _ANY else shape, colour, size, place or None)] * count


def _ground(text: str) -> Ground | None:
    words = text.split()
    patterns: list[Pattern] = [_PATTERNS[word] for word in words if word in _PATTERNS]
    first, *second = _colours([word for word in words if word not in (*_PATTERNS, "gradient")])
    return None if first is None else Ground(first, *patterns, *second)


def _colours(words: list[str]) -> list[str | None]:
    colours: list[str | None] = []
    while words:
        length = 2 if " ".join(words[:2]) in COLOURS else 1
        name, words = " ".join(words[:length]), words[length:]
        colours.append(None if name == _ANY else name)
    return colours
