"""Prompts as people type them, written by hand by people who had not seen how practice is worded.

`people.txt`, by three writers, may be looked at while it is decided how prompts are read. `people_locked.txt` is by
another writer and may not; only its grades may be known. Lines are `prompt | pictures given, if any | what must be
seen`, under headings; a picture is written as `worlds.pictures.wanted` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from training.worlds.pictures.scene import Grid, Scene
from training.worlds.pictures.wanted import Wanted, wanted

_GRIDS: Final[tuple[Grid, ...]] = ((8, 8), (8, 14), (14, 8))


@dataclass(frozen=True, slots=True)
class Asked:
    prompt: str
    given: tuple[Scene, ...]
    wanted: Wanted

    @property
    def grid(self) -> Grid:
        """Of the first canvas that has room for all of it: a square one, if it has."""
        scenes = (*self.given, self.wanted.scene())
        return next((grid for grid in _GRIDS if all(scene.fits(grid) for scene in scenes)), _GRIDS[0])


def read(file: Path) -> Mapping[str, Sequence[Asked]]:
    """By headings. Raises ValueError for a line that can't be read."""
    found: dict[str, list[Asked]] = {}
    heading = ""
    for line in file.read_text().splitlines():
        if line.startswith("#"):
            heading = line.removeprefix("#").strip()
        elif line.strip():
            prompt, *given, seen = (part.strip() for part in line.split(" | "))
            asked = Asked(prompt, tuple(wanted(scene).scene() for scene in given), wanted(seen))
            found.setdefault(heading, []).append(asked)
    return found


PEOPLE: Final = {name: read(Path(__file__).with_name(f"{name}.txt")) for name in ("people", "people_locked")}
