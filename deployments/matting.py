"""Background removal: matting by colour (GrabCut) or by an ONNX network.

A remover is a class made from a spec, and a line in `contract.model.BACKGROUND_REMOVERS`.
"""

from __future__ import annotations

import pkgutil
from typing import Final, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from deployments.checkpoint_files import network_file
from deployments.contract.model import BACKGROUND_REMOVERS, NETWORKS, MattingConfig
from deployments.images import Pixels


class BackgroundRemover(Protocol):
    def alpha(self, image: Pixels) -> Pixels:
        """Maps (H, W, 3) RGB to (H, W): 255 on the subject, 0 on the background, soft in between.

        Without a subject that stands out, everything is subject.
        """
        ...


def fetch_network(spec: MattingConfig) -> MattingConfig:
    """Returns the spec with the path of its network's file, which it fetches. Raises CheckpointError."""
    if spec.checkpoint is None or spec.backend not in NETWORKS:
        return spec
    network = network_file(spec.checkpoint, spec.revision)
    return spec.model_copy(update={"checkpoint": str(network), "revision": None})


def load_background_remover(spec: MattingConfig) -> BackgroundRemover:
    """Loads the remover of `spec.backend`, which may take long. Raises CheckpointError."""
    remover: BackgroundRemover = pkgutil.resolve_name(BACKGROUND_REMOVERS[spec.backend])(spec)
    return remover


_SIDE: Final = 384
"""Longest side at which the cut is computed, as GrabCut's time grows faster than the area."""
_RIM: Final = 0.05
"""Share of each side that shows the background: enough for more than one colour of most patterns."""
_CELL: Final = 5
"""Units of CIELAB in a cell; colours in one cell are not distinguished."""
_MIN_SHARE: Final = 0.01
"""Share of a side that a background colour has at least: less is where two of them meet."""
_MIN_COVERAGE: Final = 0.5
"""Share of the rim that opposite sides must explain; otherwise the colours of any side count."""

_Cells = npt.NDArray[np.intp]
_Table = npt.NDArray[np.bool_]
"""Set of colours, by cell of CIELAB."""


class GrabCut:
    """Implements BackgroundRemover."""

    def __init__(self, spec: MattingConfig) -> None:
        """Ignores the spec, as there are no weights."""

    def alpha(self, image: Pixels) -> Pixels:
        height, width = image.shape[:2]
        scale = min(1.0, _SIDE / max(height, width))
        size = max(8, round(width * scale)), max(8, round(height * scale))
        subject = _subject(np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8))
        if not subject.any():
            return np.full((height, width), 255, np.uint8)
        return np.asarray(cv2.resize(subject * 255, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)


def _subject(small: Pixels) -> Pixels:
    """Returns (H, W), 1 on the subject."""
    lab = np.asarray(cv2.cvtColor(small.astype(np.float32) / 255, cv2.COLOR_RGB2LAB), np.float32)
    cells = np.clip(np.round((lab + np.array((0, 128, 128))) / _CELL), 1, 53).astype(np.intp)
    unlike = (~_background(cells)[tuple(np.moveaxis(cells, -1, 0))]).astype(np.uint8)
    # Lines of a pixel or two are where two colours of a pattern meet, unless there is nothing else.
    mask = np.asarray(cv2.morphologyEx(unlike, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8)), np.uint8)
    if not mask.any():
        return unlike
    labels = np.where(mask > 0, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.setRNGSeed(0)  # clusters start at random, and equal images must give equal cuts
    cv2.grabCut(cv2.cvtColor(small, cv2.COLOR_RGB2BGR), labels, (0, 0, 0, 0), *models, 2, cv2.GC_INIT_WITH_MASK)
    cut = np.isin(labels, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8)
    return cut if cut.any() else mask


def _background(cells: _Cells) -> _Table:
    """Returns the colours of the background and their neighbours."""
    rows, columns = (max(1, round(side * _RIM)) for side in cells.shape[:2])
    sides = [cells[:rows], cells[-rows:], cells[:, :columns], cells[:, -columns:]]
    top, bottom, left, right = (_frequent_colours(side) for side in sides)
    pairs = (top, bottom), (bottom, top), (left, right), (right, left)
    background = _dilate(np.logical_or.reduce([side & _dilate(opposite) for side, opposite in pairs]), 2)
    rim = tuple(np.concatenate([side.reshape(-1, 3) for side in sides]).T)
    if background[rim].mean() >= _MIN_COVERAGE:
        return background
    return _dilate(np.logical_or.reduce((top, bottom, left, right)), 2)


def _frequent_colours(side: _Cells) -> _Table:
    counts = np.zeros((55, 55, 55), np.int32)
    np.add.at(counts, tuple(side.reshape(-1, 3).T), 1)
    return counts > _MIN_SHARE * side.shape[0] * side.shape[1]


def _dilate(table: _Table, steps: int = 1) -> _Table:
    """Adds neighbouring colours. The ends of the table are empty, so nothing wraps around."""
    for _ in range(steps):
        table = np.logical_or.reduce([table, *(np.roll(table, by, axis) for axis in (0, 1, 2) for by in (1, -1))])
    return table
