"""Cuts the subject out of a picture, by colour alone: GrabCut (Rother, Kolmogorov and Blake, 2004), no weights.

It takes the rim of the picture for background and separates what differs from it in colour. That works for a subject on
a plain, gradient or softly patterned ground; hair, glass and a subject that reaches the rim on all sides it can't do.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from deployments.families.pictures import Pixels

_SIDE = 384
"""Longest side at which the cut is found; GrabCut's time grows faster than the area."""
_RIM = 0.03
"""Share of each side that is taken for background."""
_ROUNDS = 4


def cut_out(pixels: Pixels) -> Pixels:
    """(H, W, 3) RGB to (H, W, 4) RGBA: alpha 255 on the subject, 0 on the background, soft in between.

    A picture in which no subject stands out stays opaque.
    """
    alpha = _soft(_subject(pixels), pixels)
    return np.dstack((pixels, alpha))


def _subject(pixels: Pixels) -> npt.NDArray[np.uint8]:
    """A small mask, 1 on the subject."""
    height, width = pixels.shape[:2]
    scale = min(1.0, _SIDE / max(height, width))
    small: Any = cv2.resize(
        pixels, (max(8, round(width * scale)), max(8, round(height * scale))), interpolation=cv2.INTER_AREA
    )
    rows, columns = small.shape[:2]
    rim_y, rim_x = max(1, round(rows * _RIM)), max(1, round(columns * _RIM))
    mask = np.full((rows, columns), cv2.GC_BGD, np.uint8)
    mask[rim_y : rows - rim_y, rim_x : columns - rim_x] = cv2.GC_PR_FGD
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.setRNGSeed(0)  # its clusters start at random, and the same picture must give the same cut
    cv2.grabCut(cv2.cvtColor(small, cv2.COLOR_RGB2BGR), mask, None, *models, _ROUNDS, cv2.GC_INIT_WITH_MASK)  # type: ignore[arg-type]
    return ((mask == cv2.GC_FGD) | (mask == cv2.GC_PR_FGD)).astype(np.uint8)


def _soft(subject: npt.NDArray[np.uint8], pixels: Pixels) -> npt.NDArray[np.uint8]:
    height, width = pixels.shape[:2]
    if not subject.any():
        return np.full((height, width), 255, np.uint8)
    cleaned: Any = cv2.morphologyEx(subject * 255, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    if not cleaned.any():
        cleaned = subject * 255  # a subject as thin as specks of noise
    enlarged: Any = cv2.resize(cleaned, (width, height), interpolation=cv2.INTER_LINEAR)
    return enlarged
