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

from support.shapes import COLOURS, SIZES, Ground, Pattern, Scene, Thing

_ANY: Final = "any"
_PATTERNS: Final[Mapping[str, Pattern]] = {
    "stripes": "striped",
    "checkers": "checkered",
    "dots": "dotted",
    "down": "vertical",
    "across": "horizontal",
}


@dataclass(frozen=True, slots=True)
class Asked:
    prompt: str
    given: tuple[Scene, ...]
    """The pictures that it speaks of."""
    wanted: Scene


def read(file: Path) -> dict[str, list[Asked]]:
    """By headings; lines are `prompt | pictures given, if any | what must be seen`."""
    found: dict[str, list[Asked]] = {}
    heading: list[Asked] = []
    for line in filter(None, file.read_text().splitlines()):
        if line.startswith("#"):
            heading = found.setdefault(line.removeprefix("# "), [])
        else:
            prompt, *given, seen = line.split(" | ")
            heading.append(Asked(prompt, tuple(map(scene, given)), scene(seen)))
    return found


def scene(text: str) -> Scene:
    things, ground = text.split(" / ")
    parts = [] if things == "nothing" else things.split(" + ")
    return Scene(tuple(thing for part in parts for thing in _things(part)), _ground(ground))


def _things(text: str) -> list[Thing]:
    named, _, place = text.partition(" @ ")
    *words, shape = named.split()
    count = int(words.pop(0)) if words[0].isdigit() else 1
    size = words.pop(0) if words[0] in SIZES else None
    [colour] = _colours(words)
    return [Thing(None if shape == _ANY else shape, colour, size, place or None)] * count


def _ground(text: str) -> Ground | None:
    words = text.split()
    patterns: list[Pattern] = [_PATTERNS[word] for word in words if word in _PATTERNS]
    first, *second = _colours([word for word in words if word not in (*_PATTERNS, "gradient")])
    return None if first is None else Ground(first, *patterns, *second)


def _colours(words: list[str]) -> list[str | None]:
    found: list[str | None] = []
    while words:
        length = 2 if " ".join(words[:2]) in COLOURS else 1
        name, words = " ".join(words[:length]), words[length:]
        found.append(None if name == _ANY else name)
    return found
