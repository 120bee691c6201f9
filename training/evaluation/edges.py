"""Edges of pictures: whether they are where they should be, and how wide they are."""

from __future__ import annotations

from typing import Final, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
import torch

from training.worlds import palette
from training.worlds.pictures.judge import Pixels
from training.worlds.pictures.scene import Grid, Scene, Thing
from training.worlds.shapes import SHAPES

THRESHOLDS: Final = (50, 200)
"""Of the Canny detector, as the service has them by default."""
_NEAR: Final = 2
"""Pixels between two edges that are the same one."""

_REACH: Final = 28
"""Pixels to either side of an outline that are looked at; at 1024 pixels, 3.5 of those that were drawn."""
_STEP: Final = 0.5
_STRAIGHT: Final = 0.99
"""Cosine between the normals 12 pixels before and behind: corners are no straight crossings."""
_CROSSINGS: Final = 60
_FEWEST: Final = 5
_ENDS: Final = 8
"""Samples at either end of a crossing that tell its two colours."""

Points: TypeAlias = npt.NDArray[np.float32]
"""(N, 2): x and y in pixels."""


def found(pixels: Pixels) -> npt.NDArray[np.uint8]:
    """(H, W): 255 on edges."""
    return np.asarray(cv2.Canny(np.ascontiguousarray(pixels), *THRESHOLDS), np.uint8)


def agreement(edges: npt.NDArray[np.uint8], expected: npt.NDArray[np.uint8]) -> float:
    """F1: harmonic mean of the share of edges that are expected and of expected edges that are there, within 2 px."""
    if not edges.any() or not expected.any():
        return float(not edges.any() and not expected.any())
    precise, complete = (
        float((cv2.distanceTransform(255 - other, cv2.DIST_L2, 5)[one > 0] <= _NEAR).mean())
        for one, other in ((edges, expected), (expected, edges))
    )
    return 2 * precise * complete / max(precise + complete, 1e-9)


def width(pixels: Pixels, scene: Scene, grid: Grid) -> float:
    """Pixels over which the outlines of the scene's things go from 10 % to 90 %, the median over straight crossings.

    `_REACH` times two when too few crossings show the thing's colours at all.
    """
    widths: list[float] = []
    for thing in scene.things:
        points, normals = _crossings(thing, grid, pixels.shape[1::-1])
        along = np.arange(-_REACH, _REACH + _STEP, _STEP, dtype=np.float32)
        spots = points[:, None] + along[None, :, None] * normals[:, None]  # (N, S, 2)
        profiles = cv2.remap(pixels, spots[..., 0], spots[..., 1], cv2.INTER_LINEAR).astype(np.float32) / 255
        colour = np.asarray(palette.COLOURS[thing.colour], np.float32)
        widths += [w for profile in profiles if (w := _rise(profile, colour)) is not None]
    return float(np.median(widths)) if len(widths) >= _FEWEST else 2.0 * _REACH


def _rise(profile: npt.NDArray[np.float32], colour: npt.NDArray[np.float32]) -> float | None:
    """Of samples (S, 3) from inside a thing outwards; None when they don't lead from its colour to another one."""
    inside, outside = profile[:_ENDS].mean(axis=0), profile[-_ENDS:].mean(axis=0)
    contrast = outside - inside
    size = float(contrast @ contrast)
    if size < 0.15**2 or np.linalg.norm(inside - colour) > 0.2:
        return None
    share = (profile - inside) @ contrast / size
    beyond = int(np.argmax(share > 0.9))
    before = np.flatnonzero(share[:beyond] < 0.1)
    return (beyond - int(before[-1])) * _STEP if len(before) and beyond else None


def _crossings(thing: Thing, grid: Grid, size: tuple[int, int]) -> tuple[Points, Points]:
    """Points on straight parts of a thing's outline and the normals there, which point outwards. `size` as (w, h)."""
    scale_x, scale_y = (pixels / tokens * min(grid) / 2 for pixels, tokens in zip(size, grid[::-1], strict=True))
    x, y, radius = thing.circle(grid)

    def distance(points: Points) -> npt.NDArray[np.float32]:
        """(...): in pixels, right near the outline."""
        across = torch.from_numpy((points[..., 0] - size[0] / 2) / scale_x - x)
        down = torch.from_numpy((points[..., 1] - size[1] / 2) / scale_y - y)
        found = SHAPES[thing.shape](across, down, torch.tensor(radius)) * min(scale_x, scale_y)
        return found.numpy().astype(np.float32)

    def normal(points: Points) -> Points:
        slopes = [distance(points + nudge) - distance(points - nudge) for nudge in np.eye(2, dtype=np.float32)]
        slope = np.stack(slopes, axis=-1)
        return (slope / np.maximum(np.linalg.norm(slope, axis=-1, keepdims=True), 1e-6)).astype(np.float32)

    columns, rows = np.meshgrid(np.arange(0, size[0], 2), np.arange(0, size[1], 2))
    everywhere = np.stack([columns, rows], axis=-1).astype(np.float32)
    points = everywhere[np.abs(distance(everywhere)) < 1]
    normals = normal(points)
    tangents = np.stack([-normals[:, 1], normals[:, 0]], axis=1) * 12
    turns = [(normal(points + side * tangents) * normals).sum(axis=1) for side in (-1, 1)]
    levels = [distance(points + step * normals) for step in (-_REACH, -_REACH / 2, _REACH / 2, _REACH)]
    usable = (np.minimum(*turns) > _STRAIGHT) & (np.maximum(*levels[:2]) < 0) & (np.minimum(*levels[2:]) > 0)
    margin = ((points > _REACH) & (points < np.asarray(size) - _REACH)).all(axis=1)
    chosen = np.flatnonzero(usable & margin)
    chosen = chosen[:: max(1, len(chosen) // _CROSSINGS)]
    return points[chosen], normals[chosen]
