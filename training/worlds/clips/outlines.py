"""How near a clip's thing is to the shape that was named, how soft its outline is, and whether its colour stays."""

from __future__ import annotations

import math
from typing import Final

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from training.worlds.clips.judge import STANDS_OUT, Frames, backdrop
from training.worlds.edge_width import WIDEST, edge_width
from training.worlds.shapes import silhouette

_LOOKS: Final = 7
"""Frames that are looked at."""
_RASTER: Final = 256
"""Pixels of the side of a square in which a shape's own area and middle are measured."""
_REACH: Final = 13
"""Pixels of the side of a square in which the steepest slope of an outline is looked for."""


def figures(shape: str, frames: Frames) -> dict[str, float]:
    """Of `_LOOKS` frames, the median each: IoU with the shape, and the outline's width from 10 to 90 % in pixels.

    And by how much the thing's colour differs from its median at most, in levels of 255. A frame without a thing has an
    IoU of 0 and an outline of 60 pixels.
    """
    behind = backdrop(frames)
    looks = [_look(shape, frames[at], behind) for at in np.linspace(0, len(frames) - 1, _LOOKS).round().astype(int)]
    colours = np.array([colour for _, _, colour in looks if colour is not None])
    drift = 0.0 if not len(colours) else float(np.linalg.norm(colours - np.median(colours, axis=0), axis=1).max())
    overlaps, widths, _ = zip(*looks, strict=True)
    return {
        "mean IoU": float(np.median(overlaps)),
        "median edge px": float(np.median(widths)),
        "mean drift": 255 * drift,
    }


def _look(
    shape: str, frame: NDArray[np.float32], behind: NDArray[np.float32]
) -> tuple[float, float, NDArray[np.float32] | None]:
    apart = np.linalg.norm(frame - behind, axis=2)
    covered = apart > STANDS_OUT
    if not covered.any():
        return 0.0, WIDEST, None
    contrast = float(np.quantile(apart[covered], 0.75))
    seen = apart > contrast / 2
    return overlap(shape, seen), _width(apart, seen, contrast), np.median(frame[apart >= 0.8 * contrast], axis=0)


def overlap(shape: str, seen: NDArray[np.bool_]) -> float:
    """Intersection over union of what is seen, (H, W), with the shape of the same area in the same place."""
    whole = silhouette(shape, torch.tensor([[_RASTER / 2, _RASTER / 2, _RASTER / 4]]), (_RASTER, _RASTER))[0].numpy()
    radius = _RASTER / 4 * math.sqrt(seen.sum() / whole.sum())
    off_x, off_y = (middle - _RASTER / 2 for middle in _middle(whole))
    x, y = _middle(seen)
    share = radius / (_RASTER / 4)
    circle = torch.tensor([[x - off_x * share, y - off_y * share, radius]])
    named = silhouette(shape, circle, (seen.shape[0], seen.shape[1]))[0].numpy() > 0.5
    return float((seen & named).sum() / (seen | named).sum())


def _middle(cover: NDArray[np.float32] | NDArray[np.bool_]) -> tuple[float, float]:
    """x and y of its centre of mass, in pixels."""
    rows, columns = (np.arange(side) + 0.5 for side in cover.shape)
    total = cover.sum()
    return float((cover.sum(axis=0) * columns).sum() / total), float((cover.sum(axis=1) * rows).sum() / total)


def _width(apart: NDArray[np.float32], seen: NDArray[np.bool_], contrast: float) -> float:
    outline = cv2.morphologyEx(seen.astype(np.uint8), cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) > 0
    return edge_width(apart, outline, contrast, _REACH)
