"""Scenes of coloured shapes, as the bundled checkpoints draw them: draws them and recognizes them in images."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from functools import cache
from itertools import permutations
from random import Random
from typing import Any, Final, Literal, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from deployments.families.canvas import grid_for

Pixels: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.floating[Any]]
Mask: TypeAlias = NDArray[np.bool_]
Pattern: TypeAlias = Literal["plain", "vertical", "horizontal", "striped", "checkered", "dotted"]
PATTERNS: Final[tuple[Pattern, ...]] = ("plain", "vertical", "horizontal", "striped", "checkered", "dotted")
# fmt: off
COLOURS: Final[Mapping[str, tuple[float, float, float]]] = {
    "red": (0.86, 0.10, 0.12), "orange": (0.96, 0.54, 0.06), "yellow": (0.96, 0.86, 0.12), "green": (0.12, 0.65, 0.20),
    "dark green": (0.02, 0.29, 0.12), "cyan": (0.10, 0.80, 0.84), "light blue": (0.62, 0.80, 0.98),
    "blue": (0.12, 0.26, 0.90), "dark blue": (0.05, 0.08, 0.40), "purple": (0.52, 0.13, 0.70),
    "pink": (0.96, 0.52, 0.74), "brown": (0.46, 0.27, 0.12), "white": (0.96, 0.96, 0.96), "gray": (0.50, 0.50, 0.50),
    "black": (0.05, 0.05, 0.05),
}
# fmt: on
SIZES: Final = {"small": 1.0, "medium": 1.45, "large": 1.9}
"""Half sides of shapes. All lengths of scenes are in eighths of the image's shorter side."""
PLACES: Final = {
    f"{down} {across}".strip() or "center": (x, y)
    for x, across in ((0, ""), (-1, "left"), (1, "right"))
    for y, down in ((0, ""), (-1, "top"), (1, "bottom"))
}
_SIDE, _INSET, _PIXELS = 8, 2.0, 16
_NEAR, _OFF = 0.08, 0.14
"""RGB distances between a pixel and the ground: standard deviation of a match, and minimum of a shape's pixel."""
_FAR, _SMALLEST, _LIKE = 22.0, 0.003, 0.72
"""A shape's maximum CIELAB distance from a named colour, minimum share of the image, minimum overlap with a form."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape; None matches any value."""

    shape: str | None
    colour: str | None
    size: str | None = "medium"
    place: str | None = "center"


@dataclass(frozen=True, slots=True)
class Ground:
    colour: str
    pattern: Pattern = "plain"
    second: str | None = None


@dataclass(frozen=True, slots=True)
class ShapeScene:
    shapes: tuple[Shape, ...]
    ground: Ground | None
    """The ground; None matches any."""

    def draw(self, width: int = 512, height: int = 512) -> Pixels:
        assert self.ground is not None
        image = _ground(self.ground, grid_for(width, height, _SIDE), (height, width))
        for shape in self.shapes:
            cover = _cover(shape, width, height)[..., None]
            image = image * (1 - cover) + cover * np.array(COLOURS[str(shape.colour)], np.float32)
        return (image * 255).round().astype(np.uint8)

    def mask(self, width: int = 512, height: int = 512) -> Mask:
        """Returns the pixels that shapes cover."""
        return np.max([_cover(shape, width, height) for shape in self.shapes], axis=0) >= 0.5

    def faults(self, image: Pixels, unless: Collection[str] = ()) -> list[str]:
        """Lists how an image differs, such as `shape: star, not heart`. Fields of shapes in `unless` may differ."""
        shapes, ground = recognize(image)
        faults = [] if self.ground in (None, ground) else [f"ground: {ground}, not {self.ground}"]
        if len(shapes) != len(self.shapes):
            return [*faults, f"count: {len(shapes)}, not {len(self.shapes)}"]
        parts = [field.name for field in fields(Shape) if field.name not in unless]
        candidates = (
            [
                f"{part}: {getattr(actual, part)}, not {getattr(expected, part)}"
                for expected, actual in zip(self.shapes, order, strict=True)
                for part in parts
                if getattr(expected, part) not in (None, getattr(actual, part))
            ]
            for order in permutations(shapes)
        )
        return [*faults, *min(candidates, key=len)]


def random_scene(random: Random, things: int, pattern: Pattern | None = None) -> ShapeScene:
    """Returns shapes of different forms and colours, apart from each other, on `pattern` or a random one."""
    colours = random.sample(list(COLOURS), things + 2)
    pattern = pattern or random.choice(PATTERNS)
    ground = Ground(colours[0], pattern, None if pattern == "plain" else colours[1])
    places = random.sample(["top left", "top right", "bottom left", "bottom right"], things)
    shapes = random.sample(list(_SHAPES), things)
    return ShapeScene(
        tuple(map(Shape, shapes, colours[2:], random.choices(["small", "medium"], k=things), places)), ground
    )


def recognize(image: Pixels) -> tuple[list[Shape], Ground]:
    """Returns the shapes and the ground of an image, the largest shape first. An unknown outline has no form."""
    grid = grid_for(image.shape[1], image.shape[0], _SIDE)
    size = grid[1] * _PIXELS, grid[0] * _PIXELS
    small = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.float32) / np.float32(255)
    ground = _find_ground(small, grid)
    behind = _ground(ground, grid, small.shape[:2])
    steps = cv2.dilate(behind, np.ones((3, 3))) - cv2.erode(behind, np.ones((3, 3)))
    off = np.linalg.norm(small - behind, axis=2) > _OFF + np.linalg.norm(steps, axis=2) / 2
    mask = cv2.morphologyEx(off.astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    if ground.pattern in ("striped", "checkered", "dotted"):  # whose edges cut shapes apart
        mask = cv2.morphologyEx(mask, cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    count, labels = cv2.connectedComponents(mask, connectivity=4)
    pieces = sorted((labels == index for index in range(1, count)), key=np.count_nonzero, reverse=True)
    return [_shape(small, piece, grid) for piece in pieces if np.mean(piece) >= _SMALLEST], ground


def _cover(thing: Shape, width: int, height: int) -> Floats:
    rows, columns = grid_for(width, height, _SIDE)
    across, down = PLACES[thing.place or "center"]
    x, y = (columns / 2 + across * (columns / 2 - _INSET)), (rows / 2 + down * (rows / 2 - _INSET))
    scale = width / columns, height / rows
    radius = SIZES[thing.size or "medium"] * min(scale)
    return _silhouette(str(thing.shape), x * scale[0], y * scale[1], radius, (height, width))


def _silhouette(shape: str, x: float, y: float, radius: float, size: tuple[int, int]) -> Floats:
    rows, columns = (np.arange(side, dtype=np.float32) + 0.5 for side in size)
    distance = _SHAPES[shape]((columns - x)[None, :] / radius, (rows - y)[:, None] / radius) * radius
    return np.clip(0.5 - distance, 0, 1).astype(np.float32)


@cache
def _blend(pattern: Pattern, grid: tuple[int, int], size: tuple[int, int]) -> Floats:
    """Returns the share of the second colour, (height, width) in [0, 1]."""
    rows = ((np.arange(size[0]) + 0.5) * grid[0] / size[0])[:, None]
    columns = ((np.arange(size[1]) + 0.5) * grid[1] / size[1])[None, :]
    dots = 0.28 - np.hypot(rows % 1 - 0.5, columns % 1 - 0.5)
    shares: Mapping[Pattern, Floats] = {
        "plain": 0 * rows,
        "vertical": rows / grid[0],
        "horizontal": columns / grid[1],
        "striped": np.floor(columns) % 2,
        "checkered": (np.floor(rows) + np.floor(columns)) % 2,
        "dotted": np.clip(0.5 + dots * size[0] / grid[0], 0, 1),
    }
    return np.broadcast_to(shares[pattern], size).astype(np.float32)


def _ground(ground: Ground, grid: tuple[int, int], size: tuple[int, ...]) -> Floats:
    first, second = (np.array(COLOURS[name], np.float32) for name in (ground.colour, ground.second or ground.colour))
    return first + _blend(ground.pattern, grid, (size[0], size[1]))[..., None] * (second - first)


def _find_ground(image: Floats, grid: tuple[int, int]) -> Ground:
    """Returns the ground that matches most points of an image; points at the edges of patterns are left out."""
    points = np.ix_(*((np.arange(side)[:, None] * _PIXELS + (2, 7)).ravel() for side in grid))
    samples, names = image[points].reshape(-1, 1, 1, 3), list(COLOURS)
    palette = np.array(list(COLOURS.values()), np.float32)
    candidates: list[tuple[float, int, int, Pattern]] = []
    for pattern in PATTERNS:
        part = _blend(pattern, grid, image.shape[:2])[points].reshape(-1, 1, 1, 1)
        pairs = palette[:, None] + part * (palette - palette[:, None])
        scores = np.exp(((samples - pairs) ** 2).sum(axis=3) / (-2 * _NEAR**2)).mean(axis=0)
        scores[np.eye(len(names), dtype=bool) != (pattern == "plain")] = 0
        candidates.append((float(scores.max()), *divmod(int(scores.argmax()), len(names)), pattern))
    _, first, second, pattern = max(candidates)
    return Ground(names[first], pattern, None if pattern == "plain" else names[second])


def _shape(image: Floats, piece: Mask, grid: tuple[int, int]) -> Shape:
    inner = cv2.erode(piece.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
    colour = np.median(image[inner if inner.any() else piece], axis=0)
    area, x, y = _mass(piece)
    fits: list[tuple[float, str, float, float, float]] = []
    for shape in _SHAPES:
        unit, right, below = _unit(shape)
        radius = math.sqrt(area / unit)
        middle = x - right * radius, y - below * radius
        cover = _silhouette(shape, *middle, radius, piece.shape[:2]) > 0.5
        fits.append((float((cover & piece).sum() / (cover | piece).sum()), shape, *middle, radius))
    overlap, shape, x, y, radius = max(fits)
    away = [(x / _PIXELS - grid[1] / 2) / (grid[1] / 2 - _INSET), (y / _PIXELS - grid[0] / 2) / (grid[0] / 2 - _INSET)]
    return Shape(
        shape if overlap >= _LIKE else None,
        _colour(colour),
        min(SIZES, key=lambda name: abs(math.log(radius / _PIXELS / SIZES[name]))),
        min(PLACES, key=lambda name: math.dist(away, PLACES[name])),
    )


def _colour(colour: Floats) -> str | None:
    rgb = np.array([[colour, *COLOURS.values()]], np.float32)
    [own, *palette] = cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB)[0]
    distance, name = min((float(np.linalg.norm(own - lab)), name) for lab, name in zip(palette, COLOURS, strict=True))
    return name if distance <= _FAR else None


@cache
def _unit(shape: str) -> tuple[float, float, float]:
    """Returns area and centroid of a form of half side 1."""
    area, x, y = _mass(_silhouette(shape, 128, 128, 100, (256, 256)) > 0.5)
    return area / 100**2, (x - 128) / 100, (y - 128) / 100


def _mass(piece: Mask) -> tuple[float, float, float]:
    moments = cv2.moments(piece.astype(np.uint8), binaryImage=True)
    return moments["m00"], moments["m10"] / moments["m00"] + 0.5, moments["m01"] / moments["m00"] + 0.5


def _star(x: Floats, y: Floats) -> Floats:
    fifth = 2 * math.pi / 5
    angle = np.mod(np.arctan2(x, -y) + fifth / 2, fifth) - fifth / 2  # every tip becomes the upper one
    distance = np.hypot(x, y)
    across, up = 0.45 * math.sin(fifth / 2), 0.45 * math.cos(fifth / 2) - 1  # from the tip to the valley
    edge = across * (distance * np.cos(angle) - 1) - up * distance * abs(np.sin(angle))
    return edge / math.hypot(across, up)


def _heart(x: Floats, y: Floats) -> Floats:
    half, down = 0.82, y - 0.082
    square = (abs(x) + abs(down) - half) * math.sqrt(0.5)
    return np.minimum(square, np.hypot(abs(x) - half / 2, down + half / 2) - half * math.sqrt(0.5))


_SHAPES: Final[Mapping[str, Callable[[Floats, Floats], Floats]]] = {
    "circle": lambda x, y: np.hypot(x, y) - 1,
    "square": lambda x, y: np.maximum(abs(x), abs(y)) - 0.86,
    "triangle": lambda x, y: np.maximum(y - 0.75, 0.882 * abs(x) - 0.471 * (y + 1)),
    "star": _star,
    "ring": lambda x, y: abs(np.hypot(x, y) - 0.76) - 0.24,
    "cross": lambda x, y: np.maximum(np.minimum(abs(x), abs(y)) - 0.32, np.maximum(abs(x), abs(y)) - 1),
    "diamond": lambda x, y: (abs(x) * 1.35 + abs(y) - 1) / math.hypot(1.35, 1),
    "heart": _heart,
    "moon": lambda x, y: np.maximum(np.hypot(x, y) - 1, 0.8 - np.hypot(x - 0.55, y)),
    "arrow": lambda x, y: np.minimum(
        np.maximum(abs(y) - 0.26, abs(x + 0.45) - 0.55), np.maximum(-x, 0.6 * (x - 1) + 0.8 * abs(y))
    ),
}
"""Signed distances from the outline, negative inside, at half side 1, after Inigo Quilez."""
