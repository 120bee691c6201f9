"""Edges of pictures: whether they are where they should be, and how wide they are."""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from serve_app.requests.canny import CannyRequest
from training.worlds import vocabulary
from training.worlds.edge_width import edge_width
from training.worlds.pictures.drawing import Pixels, covers
from training.worlds.pictures.scene import Grid, Scene

THRESHOLDS: Final = (
    CannyRequest.model_fields["canny_low_threshold"].default,
    CannyRequest.model_fields["canny_high_threshold"].default,
)
"""Of the Canny detector, as the service has them by default."""
_NEAR: Final = 2
"""Pixels between two edges that are the same one."""
_REACH: Final = 25
"""Pixels of the side of a square in which an outline's edge is looked for."""
_STEEP: Final = 60
"""Levels of 255 within five pixels that make an edge."""


def found(pixels: Pixels) -> NDArray[np.uint8]:
    """(H, W): 255 on edges."""
    return np.asarray(cv2.Canny(np.ascontiguousarray(pixels), *THRESHOLDS), np.uint8)


def agreement(edges: NDArray[np.uint8], expected: NDArray[np.uint8]) -> float:
    """F1: harmonic mean of the share of edges that are expected and of expected edges that are there, within 2 px."""
    if not edges.any() or not expected.any():
        return float(not edges.any() and not expected.any())
    precise, complete = (
        float((cv2.distanceTransform(255 - other, cv2.DIST_L2, 5)[one > 0] <= _NEAR).mean())
        for one, other in ((edges, expected), (expected, edges))
    )
    return 2 * precise * complete / max(precise + complete, 1e-9)


def fringe(pixels: Pixels, scene: Scene, grid: Grid) -> float:
    """How far colours along edges are from any mixture of the thing's and the background's, on average, in levels.

    The scene has one thing on a plain background; what its two colours came out as is seen away from its outline.
    """
    [thing] = scene.things
    cover = covers([thing], grid, pixels.shape[0] // grid[0])[0, 0].numpy()
    picture = pixels.astype(np.float32)
    inside, outside = (np.median(picture[area], axis=0) for area in (cover == 1, cover == 0))
    window = np.ones((5, 5), np.uint8)
    steep = cv2.subtract(cv2.dilate(pixels, window), cv2.erode(pixels, window)).max(axis=2) > _STEEP
    line, seen = outside - inside, picture[steep]
    if not len(seen):
        return 0.0
    share = ((seen - inside) @ line / max(float(line @ line), 1.0)).clip(0, 1)
    return float(np.linalg.norm(seen - (inside + share[:, None] * line), axis=1).mean())


def width(pixels: Pixels, scene: Scene, grid: Grid) -> float:
    """Pixels over which the outline of the scene's only thing goes from 10 % to 90 %, the median along it, or 60.

    The thing lies on a plain background, so both of an edge's colours are known, and its width follows from its slope.
    """
    [thing] = scene.things
    colours = (np.asarray(vocabulary.COLOURS[name]) for name in (thing.colour, scene.background.colour))
    contrast = float(np.linalg.norm(np.subtract(*colours)))
    picture = pixels.astype(np.float32) / np.float32(255)
    cover = covers([thing], grid, pixels.shape[0] // grid[0])[0, 0].numpy()
    return edge_width(picture, (cover > 0) & (cover < 1), contrast, _REACH)
