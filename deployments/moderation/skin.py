"""A small check of pictures that needs no weights: how much of one looks like bare skin.

Colour by Chai and Ngan, "Face segmentation using skin-color map in videophone applications" (IEEE Transactions on
Circuits and Systems for Video Technology 9(4), 1999), for dark skin and light. Large regions count that also have a
slight texture: drawn areas have none. It can't tell a nude from a close portrait, a hand or a beach, takes wood, sand
and bread for skin, and is blind to pictures without colour or in drawn styles: its score stays below what most
tolerances refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from deployments.contract.moderation import JudgeSpec, Scores
from deployments.pictures.pixels import Pixels

HIGHEST: Final = 0.6
_SIDE: Final = 256
"""Longest side of the copy that is looked at."""
_SHARE: Final = 0.12, 0.5
"""Of the picture: a face in front of something has less than the first, and from the second on it makes no odds."""
_LEAST_REGION: Final = 0.02
_FLAT, _ROUGH, _BENT = 0.005, 0.07, 0.024
"""As shares of the luma: below which texture a region is drawn, above which it is an edge or hair, and how far the luma
of a body bends away from an even gradient."""
_DARK: Final = 48.0
"""Luma below which they are shares of this instead: rounding would count."""


class SkinJudge:
    def __init__(self, spec: JudgeSpec) -> None:
        """There is nothing to load."""

    def judge(self, pictures: Sequence[Pixels]) -> list[Scores]:
        least, most = _SHARE
        return [
            {"sexual content": HIGHEST * float(np.clip((_share(each) - least) / (most - least), 0, 1))}
            for each in pictures
        ]


def _share(picture: Pixels) -> float:
    """How much of the picture is skin, 0 to 1."""
    scale = min(1.0, _SIDE / max(picture.shape[:2]))
    size = max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale))
    small = np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)
    luma, cr, cb = (np.asarray(plane, np.float32) for plane in cv2.split(cv2.cvtColor(small, cv2.COLOR_RGB2YCrCb)))
    level = np.maximum(cv2.blur(luma, (9, 9)), _DARK)
    detail = luma - cv2.GaussianBlur(luma, (0, 0), 1.5)
    texture = np.sqrt(np.maximum(cv2.blur(detail * detail, (9, 9)), 0)) / level
    coloured = (cb >= 77) & (cb <= 127) & (cr >= 133) & (cr <= 173) & (luma >= 24) & (texture < _ROUGH)
    opened = cv2.morphologyEx(coloured.astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    found: Any = cv2.connectedComponentsWithStats(opened, connectivity=4, ltype=cv2.CV_32S)
    count, regions, _, _ = found
    shares = [np.mean(inside) for region in range(1, count) if _is_body(inside := regions == region, texture, level)]
    return float(sum(shares))


def _is_body(inside: npt.NDArray[np.bool_], texture: npt.NDArray[Any], level: npt.NDArray[Any]) -> bool:
    if inside.mean() < _LEAST_REGION or np.median(texture[inside]) < _FLAT:
        return False
    places = np.column_stack([*np.nonzero(inside), np.ones(np.count_nonzero(inside))])
    plane = places @ np.linalg.lstsq(places, level[inside])[0]
    return float(np.std(level[inside] - plane)) >= _BENT * float(level[inside].mean())
