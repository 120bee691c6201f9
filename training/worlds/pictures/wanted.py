"""What a prompt asks for, as far as it says: what it leaves open may be anything.

Written as `things / background`. Things are joined by ` + `; each is `[count] [size] colour shape [@ place]`. `any` is
a colour, a shape or a background that is left open; a size or a place that is left open is not written. Backgrounds are
`white`, `stripes red white`, `checkers red white`, `dots red white`, `gradient red white down`, `... across`. Without
things: `nothing / red`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from training.worlds.pictures.backdrop import Backdrop
from training.worlds.pictures.judge import place_of, size_of
from training.worlds.pictures.scene import Background, BackgroundKind, Grid, Scene, Thing, arranged
from training.worlds.pictures.things import Seen
from training.worlds.vocabulary import COLOURS, PLACES, SHAPES, SIZES

_ANY: Final = "any"
_PATTERNS: Final[dict[str, BackgroundKind]] = {"stripes": "striped", "checkers": "checkered", "dots": "dotted"}
_WAYS: Final[dict[str, BackgroundKind]] = {"down": "vertical", "across": "horizontal"}


@dataclass(frozen=True, slots=True)
class WantedThing:
    """None is for what is left open."""

    shape: str | None
    colour: str | None
    size: str | None = None
    place: str | None = None

    def faults(self, seen: Seen, grid: Grid) -> tuple[str, ...]:
        pairs = (
            ("shape", seen.shape, self.shape),
            ("colour", seen.colour, self.colour),
            ("size", size_of(seen.circle), self.size),
            ("place", place_of(seen.circle, grid), self.place),
        )
        return tuple(f"{part}: {found}, not {asked}" for part, found, asked in pairs if asked not in (None, found))


@dataclass(frozen=True, slots=True)
class Wanted:
    things: tuple[WantedThing, ...]
    background: Background | None

    def faults(self, seen: Sequence[Seen], backdrop: Backdrop, grid: Grid) -> tuple[str, ...]:
        """What is wrong with a picture, in words to count by."""
        faults: list[str] = []
        if self.background is not None and not backdrop.shows(self.background):
            faults.append(f"background: {backdrop.kind} {'/'.join(map(str, backdrop.colours))}")
        if len(seen) != len(self.things):
            return (*faults, f"count: {len(seen)}, not {len(self.things)}")
        orders = (
            [fault for thing, found in zip(self.things, order, strict=True) for fault in thing.faults(found, grid)]
            for order in permutations(seen)
        )
        return (*faults, *min(orders, key=len))

    def scene(self) -> Scene:
        """One that is right; what is left open is as captions leave it out."""
        colours = {thing.colour for thing in self.things if thing.colour}
        unsaid = (
            behind for behind in map(Background, ("white", "gray", "black", "pink")) if behind.colour not in colours
        )
        background = self.background or next(unsaid)
        spare = iter([colour for colour in COLOURS if colour not in colours and not background.hides(colour)])
        taken = {thing.place for thing in self.things}
        places = iter([thing for thing in arranged(len(self.things)) if thing.place not in taken])
        return Scene(tuple(_thing(wanted, places, spare, len(self.things)) for wanted in self.things), background)


def _thing(wanted: WantedThing, places: Iterator[Thing], spare: Iterator[str], count: int) -> Thing:
    where = Thing("", "", place=wanted.place) if wanted.place else next(places)
    return Thing(
        wanted.shape or "circle",
        wanted.colour or next(spare),
        wanted.size or ("small" if count > 4 else "medium"),
        where.place,
        shift=where.shift,
    )


def wanted(text: str) -> Wanted:
    """Raises ValueError for what is written otherwise."""
    things, slash, behind = (part.strip() for part in text.rpartition("/"))
    if not slash:
        raise ValueError(f"{text!r} has no background")
    told = [] if things == "nothing" else [thing for part in things.split(" + ") for thing in _things(part)]
    return Wanted(tuple(told), None if behind == _ANY else _background(behind.split()))


def _things(text: str) -> list[WantedThing]:
    named, _, place = (part.strip() for part in text.partition("@"))
    words = named.split()
    count = int(words.pop(0)) if words[0].isdigit() else 1
    size = words.pop(0) if words[0] in SIZES else None
    colour, words = (None, words[1:]) if words[0] == _ANY else _colour(words)
    [shape] = words
    if shape not in (*SHAPES, _ANY) or place not in ("", *PLACES):
        raise ValueError(f"{text!r} is no thing")
    return [WantedThing(None if shape == _ANY else shape, colour, size, place or None)] * count


def _background(words: list[str]) -> Background:
    kind, *rest = words
    if kind not in (*_PATTERNS, "gradient"):
        colour, rest = _colour(words)
        if rest:
            raise ValueError(f"{' '.join(words)!r} is no background")
        return Background(colour)
    first, rest = _colour(rest)
    second, rest = _colour(rest)
    return Background(first, _WAYS[rest[0]] if kind == "gradient" else _PATTERNS[kind], second)


def _colour(words: list[str]) -> tuple[str, list[str]]:
    for length in (2, 1):
        if (name := " ".join(words[:length])) in COLOURS:
            return name, words[length:]
    raise ValueError(f"{' '.join(words)!r} begins with no colour")
