"""What a prompt asks for, in a notation of its own: as much of a scene as it says, what it leaves open may be anything.

Written as `things / ground`. Things are joined by ` + `; each is `[count] [size] colour shape [@ place]`, where colour
and shape may be `any`. Grounds are `any`, `white`, `stripes red white`, `checkers red white`, `dots red white`,
`gradient red white down`, `... across`. Without things: `nothing / red`.
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
    """The images that it speaks of."""
    expected: ShapeScene


def read(file: Path) -> dict[str, list[PromptCase]]:
    """By headings; lines are `prompt | images given, if any | what must be seen`."""
    sections: dict[str, list[PromptCase]] = {}
    heading: list[PromptCase] = []
    for line in filter(None, file.read_text().splitlines()):
        if line.startswith("#"):
            heading = sections.setdefault(line.removeprefix("# "), [])
        else:
            prompt, *references, expected = line.split(" | ")
            heading.append(PromptCase(prompt, tuple(map(scene, references)), scene(expected)))
    return sections


def scene(text: str) -> ShapeScene:
    things, ground = text.split(" / ")
    parts = [] if things == "nothing" else things.split(" + ")
    return ShapeScene(tuple(thing for part in parts for thing in _things(part)), _ground(ground))


def _things(text: str) -> list[Shape]:
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
