"""Cuts the subject out of a picture, by colour alone and without weights.

The ground is known by its rim: its colours are those that are seen there on two opposite sides. That holds for plain
and patterned grounds and for gradients, and not for a subject that reaches a side. GrabCut (Rother, Kolmogorov and
Blake, 2004) starts from what has other colours and finds the outline. Hair, glass, a subject that has the ground's
colours and one in the corner of a gradient it can't do.
"""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from deployments.contract.model import MattingSpec
from deployments.pictures.pixels import Pixels

_SIDE: Final = 384
"""Longest side at which the cut is found; GrabCut's time grows faster than the area."""
_RIM: Final = 0.05
"""Share of each side that shows the ground: enough to see more than one colour of most patterns."""
_ROUNDS: Final = 2

_STEP: Final = 3
"""Colours are told apart in cells of so many units of CIELAB."""
_ALIKE: Final = 2 * _STEP
"""Distance up to which a colour is the same on another side."""
_UNLIKE: Final = 12
"""Distance from all of the ground's colours that makes a pixel the subject's."""
_FLAT: Final = 6
"""Range of a pixel's neighbours, in CIELAB, up to which its colour is one and not a mixture of two at an edge."""
_MOSTLY: Final = 0.4
"""Share of a side that has to be flat for its other pixels to be left out: in noise nothing is flat."""
_KNOWN: Final = 0.5
"""Share of the rim that opposite sides must explain, or its colours count wherever they are seen."""

_NEIGHBOURS: Final = np.ones((3, 3), np.uint8)

_Cells = npt.NDArray[np.int32]
"""(..., 3): a colour in steps of _STEP."""


class GrabCut:
    """Implements matting.background_remover.BackgroundRemover."""

    def __init__(self, spec: MattingSpec) -> None:
        """Takes nothing from the spec: there are no weights."""

    def alpha(self, picture: Pixels) -> Pixels:
        height, width = picture.shape[:2]
        subject = _subject(_small(picture))
        if not subject.any():
            return np.full((height, width), 255, np.uint8)
        return np.asarray(cv2.resize(subject * 255, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)


def _small(picture: Pixels) -> Pixels:
    height, width = picture.shape[:2]
    scale = min(1.0, _SIDE / max(height, width))
    size = max(8, round(width * scale)), max(8, round(height * scale))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)


def _subject(small: Pixels) -> Pixels:
    """(H, W), 1 on the subject."""
    unlike = _unlike_ground(small)
    # What is a pixel or two wide is where two colours of a pattern meet, unless there is nothing else.
    cleaned = np.asarray(cv2.morphologyEx(unlike, cv2.MORPH_OPEN, _NEIGHBOURS), np.uint8)
    if not cleaned.any():
        return unlike
    labels = np.where(cleaned > 0, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.setRNGSeed(0)  # its clusters start at random, and the same picture must give the same cut
    bgr = cv2.cvtColor(small, cv2.COLOR_RGB2BGR)
    cv2.grabCut(bgr, labels, (0, 0, 0, 0), *models, _ROUNDS, cv2.GC_INIT_WITH_MASK)
    cut = np.isin(labels, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8)
    return cut if cut.any() else cleaned


def _unlike_ground(small: Pixels) -> Pixels:
    """(H, W), 1 where the colour is none of the ground's."""
    lab = np.asarray(cv2.cvtColor(small.astype(np.float32) / 255, cv2.COLOR_RGB2LAB), np.float32)
    cells = np.round(lab / _STEP).astype(np.int32)
    colours, places = np.unique(cells.reshape(-1, 3), axis=0, return_inverse=True)
    unlike = _distances(colours, _ground(cells, _flat(lab))) > _UNLIKE
    return unlike[places.reshape(cells.shape[:2])].astype(np.uint8)


def _flat(lab: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    spread = np.asarray(cv2.dilate(lab, _NEIGHBOURS)) - np.asarray(cv2.erode(lab, _NEIGHBOURS))
    return spread.max(-1) < _FLAT


def _ground(cells: _Cells, flat: npt.NDArray[np.bool_]) -> _Cells:
    """The ground's colours, (N, 3)."""
    rows, columns = (max(1, round(side * _RIM)) for side in flat.shape)
    sides = np.s_[:rows], np.s_[-rows:], np.s_[:, :columns], np.s_[:, -columns:]
    top, bottom, left, right = (_seen(cells[side], flat[side]) for side in sides)
    opposite = [
        one[_distances(one, other) <= _ALIKE]
        for one, other in ((top, bottom), (bottom, top), (left, right), (right, left))
    ]
    ground = np.unique(np.concatenate(opposite), axis=0)
    rim = np.concatenate([cells[side].reshape(-1, 3) for side in sides])
    colours, counts = np.unique(rim, axis=0, return_counts=True)
    known = counts[_distances(colours, ground) <= _UNLIKE].sum() / counts.sum()
    return ground if known >= _KNOWN else colours


def _seen(cells: _Cells, flat: npt.NDArray[np.bool_]) -> _Cells:
    """The colours of a side, (N, 3), without those of a single pixel."""
    chosen = cells[flat] if flat.mean() > _MOSTLY else cells.reshape(-1, 3)
    colours, counts = np.unique(chosen, axis=0, return_counts=True)
    return colours[counts >= 2]


def _distances(colours: _Cells, others: _Cells) -> npt.NDArray[np.float32]:
    """From each colour to the nearest of the others, in CIELAB."""
    nearest = np.full(len(colours), np.inf, np.float32)
    for few in np.array_split(others, max(1, len(others) // 64)):  # a table of all pairs may not fit
        if len(few):
            apart = ((colours[:, None] - few[None]) ** 2).sum(-1).min(1)
            nearest = np.minimum(nearest, _STEP * np.sqrt(apart, dtype=np.float32))
    return nearest
