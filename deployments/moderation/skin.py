"""A small check that needs no weights: how much of a picture looks like bare skin.

Colour by Chai and Ngan, "Face segmentation using skin-color map in videophone applications" (IEEE Transactions on
Circuits and Systems for Video Technology 9(4), 1999): Cb in 77 to 127, Cr in 133 to 173. It has no rule for brightness,
so that it holds for dark skin and light. Of what has such a colour, large connected regions count that also have a
slight texture and a shading that bends, as bodies have; drawn areas, flat or in an even gradient, have neither.

It can't tell a nude from a close portrait, a hand or a beach, and wood, sand, leather, bread and warm light look like
skin to it. It is blind to pictures without colour, under coloured light, in drawn styles, to skin that is retouched
or blurred until it has no texture, and to everything else that is sexual. So its score stays below what most levels
refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt

from deployments.contract.moderation import JudgeSpec, Scores
from deployments.pictures.pixels import Pixels

Mask: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float32]

CATEGORY: Final = "sexual content"
HIGHEST: Final = 0.6
"""Skin alone is no reason to refuse but for the strictest."""

_SIDE = 256
"""Longest side of the copy that is looked at; every figure below is about pictures of that size."""
_CB, _CR = (77, 127), (133, 173)
_LEAST_LUMA = 24
"""In darker places rounding decides about the colour."""
_SHARE = 0.12, 0.5
"""Of the picture: a face in front of something has less than the first, and from the second on it makes no odds."""
_LEAST_REGION = 0.02
"""Of the picture: smaller regions don't count."""
_WINDOW = 9
"""Side of the squares whose texture is measured."""
_TEXTURE = 0.004, 0.006
"""How far a region's pixels differ from their neighbours' mean, as a share of its luma, for dark skin varies less in
levels: below the first it is drawn, from the second on it may be skin."""
_ROUGH = 0.07
"""The same in a single square: rougher ones are edges, hair, gravel or bark, and bound regions."""
_SHADING = 0.016, 0.032
"""How far a region bends away from an even gradient, likewise; from the second on it may be skin."""
_DARK = 48.0
"""Luma below which shares are of this instead: rounding would count as texture."""


class SkinJudge:
    def __init__(self, spec: JudgeSpec) -> None:
        """There is nothing to load."""

    def judge(self, pictures: Sequence[Pixels]) -> list[Scores]:
        return [{CATEGORY: HIGHEST * _ramp(skin_share(picture), *_SHARE)} for picture in pictures]


def skin_share(picture: Pixels) -> float:
    """How much of the picture is skin, 0 to 1; regions that may as well be something else count in part."""
    small = _small(picture)
    luma = _luma(small)
    smooth = np.asarray(cv2.blur(luma, (_WINDOW, _WINDOW)), np.float32)
    texture = _texture(luma) / np.maximum(smooth, _DARK)
    count, regions, sizes = _regions(_coloured(small) & (texture < _ROUGH))
    area = 0.0
    for region in range(1, count):
        if sizes[region] < _LEAST_REGION * regions.size:
            continue
        inside = regions == region
        textured = _ramp(float(np.median(texture[inside])), *_TEXTURE)
        bend = _bend(smooth, inside) / max(float(smooth[inside].mean()), _DARK)
        area += int(sizes[region]) * textured * _ramp(bend, *_SHADING)
    return area / regions.size


def _small(picture: Pixels) -> Pixels:
    height, width = picture.shape[:2]
    scale = min(1.0, _SIDE / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)


def _luma(picture: Pixels) -> Floats:
    return np.asarray(cv2.transform(picture.astype(np.float32), np.array([[0.299, 0.587, 0.114]])), np.float32)


def _coloured(picture: Pixels) -> Mask:
    luma, cr, cb = (np.asarray(plane) for plane in cv2.split(cv2.cvtColor(picture, cv2.COLOR_RGB2YCrCb)))
    return (_CB[0] <= cb) & (cb <= _CB[1]) & (_CR[0] <= cr) & (cr <= _CR[1]) & (luma >= _LEAST_LUMA)


def _texture(luma: Floats) -> Floats:
    """Around each pixel, how far pixels are from the mean of their neighbours: what shading and gradients don't say."""
    detail = luma - cv2.GaussianBlur(luma, (0, 0), 1.5)
    return np.asarray(cv2.sqrt(cv2.blur(detail * detail, (_WINDOW, _WINDOW))), np.float32)


def _regions(mask: Mask) -> tuple[int, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """How many there are with what is outside, which 0 stands for; the region of every pixel; their sizes."""
    opened = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    found: Any = cv2.connectedComponentsWithStats(opened, connectivity=4, ltype=cv2.CV_32S)
    count, regions, statistics, _ = found
    return count, regions, statistics[:, cv2.CC_STAT_AREA]


def _bend(luma: Floats, inside: Mask) -> float:
    """Standard deviation of a region's luma from the plane that fits it best."""
    y, x = np.nonzero(inside)
    basis = np.column_stack((x - x.mean(), y - y.mean(), np.ones(len(x))))
    values = luma[inside].astype(np.float64)
    # Two coefficients and a mean: the normal equations are small and well-behaved once centred.
    coefficients = np.linalg.lstsq(basis.T @ basis, basis.T @ values)[0]
    return float(np.std(values - basis @ coefficients))


def _ramp(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low)))
