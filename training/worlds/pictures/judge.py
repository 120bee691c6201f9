"""Grades a finished picture: what it shows is read from its pixels alone, then compared with what it should show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt

from training.worlds.pictures.backdrop import TOKEN, Backdrop, read_backdrop
from training.worlds.pictures.naming import Floats
from training.worlds.pictures.scene import PLACES, SIZES, Grid, Scene, Thing, reach
from training.worlds.pictures.things import Seen, read_things

Pixels: TypeAlias = npt.NDArray[np.uint8]
"""(height, width, 3), RGB."""

MOST_RAG: Final = 0.08
"""Drawn pictures have under 0.001, softened by a pixel 0.02, as JPEG of quality 85 up to 0.035."""
MOST_RIM: Final = 0.05
"""Drawn pictures have under 0.001, those JPEGs up to 0.02; a grey outline of two pixels has 0.05 and more."""
_BOX_TOLERANCE: Final = 0.02
"""Of the canvas: how far a thing may reach out of its box."""
_BOX_USED: Final = 0.6
_BOX_OVERUSED: Final = 1.3
"""Of the size it should have in its box, at least and at most."""
_STAINED: Final = 0.03
"""Share of the background's pixels that may be off, anywhere and at the picture's rim."""
_RIM: Final = 2
"""Pixels."""
_NEIGHBOURHOOD: Final = 5
"""Pixels around things that are left out when the background is looked at."""


@dataclass(frozen=True, slots=True)
class ThingVerdict:
    """What became of an expected thing. `seen` is None when nothing can be meant by it; then nothing is right."""

    expected: Thing
    seen: Seen | None
    colour: bool = False
    shape: bool = False
    place: bool = False
    """For a thing with a box: whether it is inside."""
    size: bool = False
    clean: bool = False
    """Whether its outline is that of its shape, in one colour."""

    @property
    def right(self) -> bool:
        return self.colour and self.shape and self.place and self.size and self.clean


@dataclass(frozen=True, slots=True)
class Verdict:
    things: tuple[ThingVerdict, ...]
    """In the order of the expected scene."""
    seen: tuple[Seen, ...]
    backdrop: Backdrop
    background: bool
    """Its kind and colours, and that nothing stains it."""
    count: bool
    """Neither too few things nor too many."""

    @property
    def colour(self) -> bool:
        return all(thing.colour for thing in self.things)

    @property
    def shape(self) -> bool:
        return all(thing.shape for thing in self.things)

    @property
    def place(self) -> bool:
        return all(thing.place for thing in self.things)

    @property
    def size(self) -> bool:
        return all(thing.size for thing in self.things)

    @property
    def clean(self) -> bool:
        return all(thing.clean for thing in self.things)

    @property
    def rag(self) -> float:
        """Share of what the things change about the background that no drawing of them explains, on average."""
        return sum(thing.rag for thing in self.seen) / len(self.seen) if self.seen else float(bool(self.things))

    @property
    def right(self) -> bool:
        return self.background and self.count and all(thing.right for thing in self.things)

    def faults(self) -> tuple[str, ...]:
        """What is wrong, in words to count by: `shape: star, not heart`."""
        found = (
            [] if self.background else [f"background: {self.backdrop.kind} {'/'.join(map(str, self.backdrop.colours))}"]
        )
        found += [] if self.count else [f"count: {len(self.seen)}, not {len(self.things)}"]
        return (*found, *(fault for thing in self.things for fault in _faults(thing)))


def judge(picture: Pixels, grid: Grid, expected: Scene) -> Verdict:
    """`picture` may have any size; it is looked at as it was drawn, on a canvas of `grid` tokens of 16 x 16 pixels."""
    canvas = on_canvas(picture, grid)
    backdrop = read_backdrop(canvas, grid)
    seen = read_things(canvas, backdrop, grid)
    return Verdict(
        things=_matched(expected.things, seen, grid),
        seen=seen,
        backdrop=backdrop,
        background=backdrop.shows(expected.background) and not _stained(canvas, backdrop, seen),
        count=len(seen) == len(expected.things),
    )


def on_canvas(picture: Pixels, grid: Grid) -> Floats:
    """(16 x rows, 16 x columns, 3) in [0, 1], by averaging."""
    size = grid[1] * TOKEN, grid[0] * TOKEN
    same = picture.shape[:2] == size[::-1]
    small = picture if same else cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(small, np.float32) / np.float32(255)


def place_of(circle: tuple[float, float, float], grid: Grid) -> str:
    """The name of the place nearest to a thing at (x, y)."""
    x, y, _ = circle
    free = [reach(side) * 2 / min(grid) for side in grid]
    return min(PLACES, key=lambda name: math.hypot(x - PLACES[name][0] * free[1], y - PLACES[name][1] * free[0]))


def size_of(radius: float, grid: Grid) -> str:
    """The name of the size nearest to a half side, by factor."""
    tokens = max(radius, 1e-3) * min(grid) / 2
    return min(SIZES, key=lambda name: abs(math.log(tokens / SIZES[name])))


def _matched(expected: Sequence[Thing], seen: Sequence[Seen], grid: Grid) -> tuple[ThingVerdict, ...]:
    """Every expected thing with what is meant by it: the pairs that agree best come first."""
    verdicts = {
        (e, s): _compared(thing, found, grid) for e, thing in enumerate(expected) for s, found in enumerate(seen)
    }
    chosen: dict[int, ThingVerdict] = {}
    taken: set[int] = set()
    for e, s in sorted(verdicts, key=lambda pair: _disagreement(verdicts[pair], grid)):
        if e not in chosen and s not in taken:
            chosen[e] = verdicts[e, s]
            taken.add(s)
    return tuple(chosen.get(index, ThingVerdict(thing, None)) for index, thing in enumerate(expected))


def _disagreement(verdict: ThingVerdict, grid: Grid) -> float:
    assert verdict.seen is not None
    x, y, _ = verdict.expected.circle(grid)
    distance = math.hypot(verdict.seen.circle[0] - x, verdict.seen.circle[1] - y)
    return 4.0 - verdict.shape - verdict.colour - verdict.place - verdict.size / 2 + distance / 4


def _compared(thing: Thing, seen: Seen, grid: Grid) -> ThingVerdict:
    return ThingVerdict(
        expected=thing,
        seen=seen,
        colour=seen.colour == thing.colour,
        shape=seen.shape == thing.shape,
        place=_inside(thing, seen, grid) if thing.box else place_of(seen.circle, grid) == thing.place,
        size=_fills(thing, seen, grid) if thing.box else size_of(seen.circle[2], grid) == thing.size,
        clean=seen.rag <= MOST_RAG and seen.rim <= MOST_RIM,
    )


def _inside(thing: Thing, seen: Seen, grid: Grid) -> bool:
    assert thing.box is not None
    scales = (grid[0] * TOKEN, grid[1] * TOKEN) * 2
    edges = [edge / 1000 - reached / scale for edge, reached, scale in zip(thing.box, seen.box, scales, strict=True)]
    return max(edges[0], edges[1], -edges[2], -edges[3]) <= _BOX_TOLERANCE


def _fills(thing: Thing, seen: Seen, grid: Grid) -> bool:
    right = thing.circle(grid)[2]
    return _BOX_USED <= seen.circle[2] / right <= _BOX_OVERUSED


def _stained(canvas: Floats, backdrop: Backdrop, seen: Sequence[Seen]) -> bool:
    """Whether more than a trace of the background differs from what it was recognised as."""
    things = np.zeros(canvas.shape[:2], np.uint8)
    for thing in seen:
        things |= (thing.cover > 0).astype(np.uint8)
    side = 2 * _NEIGHBOURHOOD + 1
    behind = cv2.dilate(things, np.ones((side, side), np.uint8)) == 0
    off = np.linalg.norm(canvas - backdrop.pixels, axis=2) > backdrop.tolerance
    rim = np.ones_like(behind)
    rim[_RIM:-_RIM, _RIM:-_RIM] = False
    return any(np.count_nonzero(off & part) > _STAINED * np.count_nonzero(part) for part in (behind, behind & rim))


def _faults(verdict: ThingVerdict) -> list[str]:
    thing, seen = verdict.expected, verdict.seen
    if seen is None:
        return [f"missing: {thing.shape}"]
    found = [] if verdict.shape else [f"shape: {seen.shape}, not {thing.shape}"]
    found += [] if verdict.colour else [f"colour: {seen.colour}, not {thing.colour}"]
    found += [] if verdict.place else [f"place: not {'in its box' if thing.box else thing.place}"]
    found += [] if verdict.size else [f"size: not {'that of its box' if thing.box else thing.size}"]
    return found if verdict.clean else [*found, f"ragged: {seen.shape}"]
