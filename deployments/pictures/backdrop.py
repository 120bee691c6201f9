"""The picture that a result is laid over, so that what was to stay is what was sent, to the pixel.

A model draws the whole picture, also where it is not to change, and its colours are a little off. Pasted over the
original as it is, that shows as a seam. What it drew on the kept side of the border tells how far off it is; the result
is corrected by that, less and less with the distance from the border.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from deployments.pictures.pixels import Pixels

_REACH = 0.04
"""How far the correction reaches on either side of the border, as a share of the shorter side."""
_TONE = 40
"""Levels of 255. A pixel that is further off shows something else there, and says nothing of tones."""
_SIDE = 256
"""Longest side at which the correction is found: it is smooth, so it can be enlarged."""

_Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Backdrop:
    """In the job's size. Outside `repaint` its pixels stay as they are."""

    pixels: Pixels
    repaint: npt.NDArray[np.bool_]
    """(height, width)."""

    def under(self, drawn: Pixels) -> Pixels:
        return np.where(self.repaint[..., None], self._toned(drawn), self.pixels)

    def _toned(self, drawn: Pixels) -> Pixels:
        """`drawn` in the tones of the picture around it."""
        height, width = self.repaint.shape
        scale = min(1.0, _SIDE / max(height, width))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        off = _small(self.pixels, size) - _small(drawn, size)
        # Cells that are partly repainted would say something of both sides.
        kept = (_small(self.repaint, size) == 0).astype(np.float32)
        kept *= (np.abs(off).max(axis=2) < _TONE).astype(np.float32)
        correction = _spread(off, kept, max(1.0, _REACH * min(size)))
        return np.clip(drawn + cv2.resize(correction, (width, height)) + 0.5, 0, 255).astype(np.uint8)


def _small(values: npt.NDArray[np.uint8] | npt.NDArray[np.bool_], size: tuple[int, int]) -> _Floats:
    return np.asarray(cv2.resize(values.astype(np.float32), size, interpolation=cv2.INTER_AREA), np.float32)


def _spread(off: _Floats, known: _Floats, reach: float) -> _Floats:
    """`off` where it is `known` carried on to where it isn't, fading within some `reach` of it.

    Normalised convolution (Knutsson and Westin, 1993), but for the fading: the certainty limits how much is carried on.
    """
    weight = np.asarray(cv2.GaussianBlur(known, (0, 0), reach), np.float32)
    carried = np.asarray(cv2.GaussianBlur(off * known[..., None], (0, 0), reach), np.float32)
    # At a straight border half of what the window sees is known: there the correction is whole.
    share = np.minimum(1.0, 2 * weight) / np.maximum(weight, 1e-6)
    return np.asarray(carried * share[..., None], np.float32)
