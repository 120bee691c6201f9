"""Grades a finished picture: what it shows is read from its pixels alone, then compared with what it should show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from training.worlds.pictures.backdrop import Backdrop, Floats, read_backdrop
from training.worlds.pictures.drawing import Pixels, covers, draw
from training.worlds.pictures.scene import TOKEN, Grid, Scene, Thing, reach
from training.worlds.pictures.things import Seen, grown, read_things, shrunk
from training.worlds.vocabulary import PLACES, SIZES

MOST_RAG: Final = 0.08
"""Drawn pictures have under 0.001, softened by a pixel 0.02, as JPEG of quality 85 up to 0.035."""
MOST_RIM: Final = 0.05
"""Drawn pictures have under 0.001, those JPEGs up to 0.02; a grey outline of two pixels has 0.05 and more."""
MOST_CHANGED: Final = 10 / 255
"""Mean absolute difference where an edit was to change nothing."""
_BOX_TOLERANCE: Final = 0.02
"""Of the canvas: how far a thing may reach out of its box."""
_BOX_USED, _BOX_OVERUSED = 0.6, 1.3
"""Of the size it should have in its box, at least and at most."""
_STAINED: Final = 0.03
"""Share of the background's pixels that may be off, anywhere and at the picture's rim."""
_RIM: Final = 2
"""Pixels."""
_NEIGHBOURHOOD: Final = 5
"""Pixels around things that are left out when the background is looked at."""
_MOVED: Final = 0.24
"""Tokens that a thing which an edit should keep may be off, and its half side; on a canvas of 8."""
_OUT_OF_FOCUS: Final = 1.5
"""Standard deviation in pixels: across a pattern of strong colours, soft edges would add up to a change."""
_SOFT_EDGE: Final = 4
"""Pixels around what an edit changes that say nothing."""


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

    def faults(self) -> list[str]:
        thing, seen = self.expected, self.seen
        if seen is None:
            return [f"missing: {thing.shape}"]
        told = {
            f"shape: {seen.shape}, not {thing.shape}": self.shape,
            f"colour: {seen.colour}, not {thing.colour}": self.colour,
            f"place: not {'in its box' if thing.box else thing.place}": self.place,
            f"size: not {'that of its box' if thing.box else thing.size}": self.size,
            f"ragged: {seen.shape}": self.clean,
        }
        return [fault for fault, right in told.items() if not right]


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
    def parts(self) -> Mapping[str, bool]:
        """What is right of all things, and of the whole."""
        of_things = {
            part: all(getattr(thing, part) for thing in self.things) for part in ("colour", "shape", "place", "size")
        }
        clean = all(thing.clean for thing in self.things)
        return of_things | {"background": self.background, "count": self.count, "clean": clean}

    @property
    def rag(self) -> float:
        """Share of what the things change about the background that no drawing of them explains, on average."""
        return sum(thing.rag for thing in self.seen) / len(self.seen) if self.seen else float(bool(self.things))

    @property
    def right(self) -> bool:
        return all(self.parts.values())

    def faults(self) -> tuple[str, ...]:
        """What is wrong, in words to count by: `shape: star, not heart`."""
        colours = "/".join(map(str, self.backdrop.colours))
        found = [] if self.background else [f"background: {self.backdrop.kind} {colours}"]
        found += [] if self.count else [f"count: {len(self.seen)}, not {len(self.things)}"]
        return (*found, *(fault for thing in self.things for fault in thing.faults()))


@dataclass(frozen=True, slots=True)
class EditVerdict:
    verdict: Verdict
    asked: bool
    """Whether what should change is as it should be, and nothing appeared or vanished besides."""
    kept: bool
    """Whether everything else is where and as it was."""

    def faults(self) -> tuple[str, ...]:
        return (*self.verdict.faults(), *(() if self.kept else ("the rest has changed",)))


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


def judge_edit(picture: Pixels, grid: Grid, before: Scene, expected: Scene) -> EditVerdict:
    """Grades `picture` as what an edit of `before` should have become."""
    verdict = judge(picture, grid, expected)
    same_background = before.background == expected.background
    changed = [thing for thing in verdict.things if thing.expected not in before.things]
    asked = verdict.count and all(thing.right for thing in changed) and (same_background or verdict.background)
    kept = (
        all(_in_place(thing, grid) for thing in verdict.things if thing.expected in before.things)
        and (verdict.background or not same_background)
        and _difference(on_canvas(picture, grid), grid, before, expected) <= MOST_CHANGED
    )
    return EditVerdict(verdict, asked, kept)


def place_of(circle: tuple[float, float, float], grid: Grid) -> str:
    """The name of the place that a thing is nearest to."""
    x, y, _ = circle
    down, across = (reach(side) for side in grid)
    return min(PLACES, key=lambda name: math.hypot(x - PLACES[name][0] * across, y - PLACES[name][1] * down))


def size_of(circle: tuple[float, float, float]) -> str:
    return min(SIZES, key=lambda name: abs(math.log(max(circle[2], 1e-2) / SIZES[name])))


def on_canvas(picture: Pixels, grid: Grid) -> Floats:
    """(16 x rows, 16 x columns, 3) in [0, 1], by averaging."""
    size = grid[1] * TOKEN, grid[0] * TOKEN
    same = picture.shape[:2] == size[::-1]
    small = picture if same else cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(small, np.float32) / np.float32(255)


def _matched(expected: Sequence[Thing], seen: Sequence[Seen], grid: Grid) -> tuple[ThingVerdict, ...]:
    """Every expected thing with what is meant by it: the pairs that agree best come first."""
    pairs = {(e, s): _compared(thing, found, grid) for e, thing in enumerate(expected) for s, found in enumerate(seen)}
    chosen: dict[int, ThingVerdict] = {}
    taken: set[int] = set()
    for e, s in sorted(pairs, key=lambda pair: _disagreement(expected[pair[0]], seen[pair[1]], pairs[pair], grid)):
        if e not in chosen and s not in taken:
            chosen[e] = pairs[e, s]
            taken.add(s)
    return tuple(chosen.get(index, ThingVerdict(thing, None)) for index, thing in enumerate(expected))


def _disagreement(thing: Thing, seen: Seen, verdict: ThingVerdict, grid: Grid) -> float:
    distance = math.dist(seen.circle[:2], thing.circle(grid)[:2]) * 2 / min(grid)
    return 4.0 - verdict.shape - verdict.colour - verdict.place - verdict.size / 2 + distance / 4


def _compared(thing: Thing, seen: Seen, grid: Grid) -> ThingVerdict:
    radius = seen.circle[2]
    if thing.box is not None:
        scales = (grid[0] * TOKEN, grid[1] * TOKEN) * 2
        top, left, bottom, right = (
            at / scale - edge / 1000 for at, scale, edge in zip(seen.box, scales, thing.box, strict=True)
        )
        place = max(-top, -left, bottom, right) <= _BOX_TOLERANCE
        size = _BOX_USED <= radius / thing.circle(grid)[2] <= _BOX_OVERUSED
    else:
        place, size = thing.place == place_of(seen.circle, grid), thing.size == size_of(seen.circle)
    clean = seen.rag <= MOST_RAG and seen.rim <= MOST_RIM
    return ThingVerdict(thing, seen, seen.colour == thing.colour, seen.shape == thing.shape, place, size, clean)


def _stained(canvas: Floats, backdrop: Backdrop, seen: Sequence[Seen]) -> bool:
    """Whether more than a trace of the background differs from what it was recognised as."""
    things = sum((thing.cover for thing in seen), np.zeros(canvas.shape[:2], np.float32))
    behind = ~grown(things > 0, _NEIGHBOURHOOD)
    off = np.linalg.norm(canvas - backdrop.pixels, axis=2) > backdrop.tolerance
    rim = np.ones_like(behind)
    rim[_RIM:-_RIM, _RIM:-_RIM] = False
    return any(np.count_nonzero(off & part) > _STAINED * np.count_nonzero(part) for part in (behind, behind & rim))


def _in_place(thing: ThingVerdict, grid: Grid) -> bool:
    if thing.seen is None or not (thing.colour and thing.shape and thing.clean):
        return False
    off = max(abs(a - b) for a, b in zip(thing.seen.circle, thing.expected.circle(grid), strict=True))
    return off <= _MOVED * min(grid) / 8


def _difference(canvas: Floats, grid: Grid, before: Scene, expected: Scene) -> float:
    """Mean absolute difference from what is expected, where nothing was to change; 0 when that is nowhere."""
    drawn, _ = draw([expected], grid, TOKEN)
    truth = (drawn[0].permute(1, 2, 0).numpy() + 1) / 2
    if before.background == expected.background:
        still = ~grown(_covered(set(before.things) ^ set(expected.things), grid), _SOFT_EDGE)
    else:
        still = shrunk(_covered(set(before.things) & set(expected.things), grid), _SOFT_EDGE)
    difference = cv2.GaussianBlur(canvas - truth, (0, 0), _OUT_OF_FOCUS)
    return float(np.abs(difference)[still].mean()) if still.any() else 0.0


def _covered(things: set[Thing], grid: Grid) -> npt.NDArray[np.bool_]:
    """(H, W): where the things are."""
    if not things:
        return np.zeros((grid[0] * TOKEN, grid[1] * TOKEN), bool)
    return (covers(list(things), grid, TOKEN) > 0.5).any(dim=0)[0].numpy()
