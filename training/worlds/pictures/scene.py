"""What a picture of the little world shows, and scenes at random."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Literal, TypeAlias

from deployments.wording.places import SPREAD
from training.worlds import palette, shapes
from training.worlds.vocabulary import COLOURS, PLACES, SIZES

Grid: TypeAlias = tuple[int, int]
"""Rows and columns of a canvas, in tokens."""
CANVAS_SIDE: Final = 8
"""Tokens of 16 x 16 pixels along a canvas's shorter side: what the bundled models' `render_side` amounts to."""
Box: TypeAlias = tuple[int, int, int, int]
"""Top, left, bottom, right, in thousandths of the canvas."""
BackgroundKind: TypeAlias = Literal["plain", "vertical", "horizontal", "striped", "checkered", "dotted"]

BOXED: Final = (0.7, *SIZES.values(), 2.4)
"""Half sides that things in boxes have."""

INSET = 2.0
"""From a side of the canvas to the middle of a thing that is there, in tokens."""
GAP = 0.25
"""Between things, at least, in tokens."""
JITTER = 0.03
"""How far a thing may be off its place, in tokens. More would blur what is learnt: noise would choose the outline."""
TOKEN = 16
"""Pixels per side of a token, at the size that models render at."""

_ALIKE = 0.3
"""Distance of colours, in RGB of [0, 1], below which one does not stand out from the middle of a gradient."""


@dataclass(frozen=True, slots=True)
class Mask:
    """What is painted anew: the box, or the ellipse in it, or all around it."""

    box: Box
    round: bool = False
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Thing:
    shape: str
    colour: str
    size: str = "medium"
    place: str = "center"
    box: Box | None = None
    """Where it is, instead of `size` and `place`."""
    shift: tuple[float, float] = (0.0, 0.0)
    """Off its place along x and y, in tokens."""
    shade: float = 0.0

    def circle(self, grid: Grid) -> tuple[float, float, float]:
        """x and y from a canvas's middle, and half side, in tokens.

        Places are whole tokens from the middle, which is a corner of four (`families.canvas`). So a shape of some size
        cuts the tokens in one way, wherever it is and whatever the ratio, and one that is learnt in one place is known
        in all.
        """
        if self.box is not None:
            x, y, radius = _boxed(self.box, grid)
        else:
            across, down = PLACES[self.place]
            x, y, radius = across * reach(grid[1]), down * reach(grid[0]), SIZES[self.size]
        return x + self.shift[0], y + self.shift[1], radius


def reach(side: int) -> float:
    """How far from the middle of a canvas a thing at its side is, in tokens."""
    return max(0.0, side / 2 - INSET)


def _boxed(box: Box, grid: Grid) -> tuple[float, float, float]:
    """x, y and half side of the largest thing that has its middle at a corner of tokens and is inside the box."""
    rows, columns = grid
    top, bottom = ((edge / 1000 - 0.5) * rows for edge in (box[0], box[2]))
    left, right = ((edge / 1000 - 0.5) * columns for edge in (box[1], box[3]))
    x, y = float(round((left + right) / 2)), float(round((top + bottom) / 2))
    room = min(x - left, right - x, y - top, bottom - y)
    fitting = [radius for radius in BOXED if radius <= room]
    if fitting:
        return x, y, max(fitting)
    return (left + right) / 2, (top + bottom) / 2, min(right - left, bottom - top) / 2


@dataclass(frozen=True, slots=True)
class Background:
    colour: str
    kind: BackgroundKind = "plain"
    second: str | None = None
    """Of the two colours of anything but a plain one."""
    shade: float = 0.0

    @property
    def colours(self) -> tuple[str, ...]:
        return (self.colour,) if self.second is None else (self.colour, self.second)

    def hides(self, colour: str) -> bool:
        """Whether a thing of that colour would be hard to see."""
        if colour in self.colours:
            return True
        if self.kind not in ("vertical", "horizontal"):
            return False
        middle = [sum(parts) / 2 for parts in zip(*(COLOURS[name] for name in self.colours), strict=True)]
        return math.dist(middle, COLOURS[colour]) < _ALIKE


@dataclass(frozen=True, slots=True)
class Scene:
    things: tuple[Thing, ...]
    background: Background

    def fits(self, grid: Grid, gap: float = GAP) -> bool:
        """Whether nothing is nearer to anything else than `gap`, and every thing differs from what is behind it."""
        if any(self.background.hides(thing.colour) for thing in self.things):
            return False
        circles = [thing.circle(grid) for thing in self.things]
        return all(
            max(abs(x - other_x), abs(y - other_y)) >= radius + other_radius + gap
            for index, (x, y, radius) in enumerate(circles)
            for other_x, other_y, other_radius in circles[:index]
        )

    @property
    def held_out(self) -> bool:
        """Whether it is kept for grading: a tenth of the triples of shape, colour and background never is learnt."""
        behind = palette.NAMES.index(self.background.colour)
        triples = ((shapes.NAMES.index(t.shape), palette.NAMES.index(t.colour), behind) for t in self.things)
        return any((31 * s + 17 * c + 7 * b + s * c * b) % 10 == 3 for s, c, b in triples)

    def with_thing(self, index: int, thing: Thing) -> Scene:
        return replace(self, things=(*self.things[:index], thing, *self.things[index + 1 :]))

    def without_thing(self, index: int) -> Scene:
        return replace(self, things=(*self.things[:index], *self.things[index + 1 :]))


def arranged(count: int) -> tuple[Thing, ...]:
    """Where `count` things are, up to five, when nothing is said of it: nameless things, in the order of reading."""
    apart = 0.5 if count == 5 else 0.0  # of a fifth one in their middle
    corners = {
        name: (across * apart, down * apart) for name, (across, down) in PLACES.items() if across != 0 and down != 0
    }
    return tuple(Thing("", "", place=name, shift=corners.get(name, (0.0, 0.0))) for name in SPREAD[count])


def random_background(random: Random, plain: float = 0.7) -> Background:
    """Plain with probability `plain`."""
    shade = random.uniform(-palette.SHADE, palette.SHADE)
    colour, second = random.sample(palette.NAMES, 2)
    if random.random() < plain:
        return Background(colour, shade=shade)
    kinds: tuple[BackgroundKind, ...] = ("vertical", "horizontal", "striped", "checkered", "dotted")
    return Background(colour, random.choice(kinds), second, shade)


def random_thing(random: Random) -> Thing:
    shape, colour = random.choice(shapes.NAMES), random.choice(palette.NAMES)
    return settled(Thing(shape, colour, random.choice(tuple(SIZES)), random.choice(tuple(PLACES))), random)


def settled(thing: Thing, random: Random) -> Thing:
    """The thing a little off its place and its colour, as every seed should give a picture of its own."""
    return replace(
        thing,
        shift=(random.uniform(-JITTER, JITTER), random.uniform(-JITTER, JITTER)),
        shade=random.uniform(-palette.SHADE, palette.SHADE),
    )


def random_scene(random: Random, grid: Grid, things: int, held_out: bool = False, plain: float = 0.7) -> Scene:
    """A scene of `things` things of different shapes and places that fits the canvas."""
    while True:
        background = random_background(random, plain)
        names, placed = random.sample(shapes.NAMES, things), random.sample(tuple(PLACES), things)
        if things == 1 and random.random() < 0.3:
            placed = ["center"]
        told = (replace(random_thing(random), shape=s, place=p) for s, p in zip(names, placed, strict=True))
        scene = Scene(tuple(told), background)
        if scene.fits(grid) and scene.held_out == held_out:
            return scene
