"""Background removal: matting by colour (GrabCut) or by an ONNX network.

Each way is a class in a file of its own, made from a spec, and a line in `contract.model.BACKGROUND_REMOVERS`.
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
        """(H, W, 3) RGB to (H, W): 255 on the subject, 0 on the background, soft in between.

        Where no subject stands out, everything is subject.
        """
        ...


def with_network_here(spec: MattingConfig) -> MattingConfig:
    """The same, with the file of its network on this machine, which is fetched. Raises CheckpointError."""
    if spec.checkpoint is None or spec.backend not in NETWORKS:
        return spec
    network = network_file(spec.checkpoint, spec.revision)
    return spec.model_copy(update={"checkpoint": str(network), "revision": None})


def load_background_remover(spec: MattingConfig) -> BackgroundRemover:
    """The one that `spec.backend` names. May take long to load. Raises CheckpointError."""
    remover: BackgroundRemover = pkgutil.resolve_name(BACKGROUND_REMOVERS[spec.backend])(spec)
    return remover


_SIDE: Final = 384
"""Longest side at which the cut is found; GrabCut's time grows faster than the area."""
_RIM: Final = 0.05
"""Share of each side that shows the ground: enough to see more than one colour of most patterns."""
_CELL: Final = 5
"""Colours are told apart in cells of so many units of CIELAB."""
_LEAST: Final = 0.01
"""Share of a side that has a colour of the ground: less is where two of them meet."""
_LEAST_COVERAGE: Final = 0.5
"""Share of the rim that opposite sides must explain, or its colours count wherever they are seen."""

_Cells = npt.NDArray[np.intp]
_Table = npt.NDArray[np.bool_]
"""By cell of CIELAB, whether the colour is one of some."""


class GrabCut:
    """Implements BackgroundRemover."""

    def __init__(self, spec: MattingConfig) -> None:
        """Takes nothing from the spec: there are no weights."""

    def alpha(self, image: Pixels) -> Pixels:
        height, width = image.shape[:2]
        scale = min(1.0, _SIDE / max(height, width))
        size = max(8, round(width * scale)), max(8, round(height * scale))
        subject = _subject(np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8))
        if not subject.any():
            return np.full((height, width), 255, np.uint8)
        return np.asarray(cv2.resize(subject * 255, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)


def _subject(small: Pixels) -> Pixels:
    """(H, W), 1 on the subject."""
    lab = np.asarray(cv2.cvtColor(small.astype(np.float32) / 255, cv2.COLOR_RGB2LAB), np.float32)
    cells = np.clip(np.round((lab + np.array((0, 128, 128))) / _CELL), 1, 53).astype(np.intp)
    unlike = (~_ground(cells)[tuple(np.moveaxis(cells, -1, 0))]).astype(np.uint8)
    # What is a pixel or two wide is where two colours of a pattern meet, unless there is nothing else.
    mask = np.asarray(cv2.morphologyEx(unlike, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8)), np.uint8)
    if not mask.any():
        return unlike
    labels = np.where(mask > 0, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.setRNGSeed(0)  # its clusters start at random, and the same image must give the same cut
    cv2.grabCut(cv2.cvtColor(small, cv2.COLOR_RGB2BGR), labels, (0, 0, 0, 0), *models, 2, cv2.GC_INIT_WITH_MASK)
    cut = np.isin(labels, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8)
    return cut if cut.any() else mask


def _ground(cells: _Cells) -> _Table:
    """The colours of the ground and those next to them."""
    rows, columns = (max(1, round(side * _RIM)) for side in cells.shape[:2])
    sides = [cells[:rows], cells[-rows:], cells[:, :columns], cells[:, -columns:]]
    top, bottom, left, right = (_frequent_colours(side) for side in sides)
    opposite = [one & _dilate(other) for one, other in ((top, bottom), (bottom, top), (left, right), (right, left))]
    ground = _dilate(np.logical_or.reduce(opposite), 2)
    rim = tuple(np.concatenate([side.reshape(-1, 3) for side in sides]).T)
    return (
        ground
        if ground[rim].mean() >= _LEAST_COVERAGE
        else _dilate(np.logical_or.reduce((top, bottom, left, right)), 2)
    )


def _frequent_colours(side: _Cells) -> _Table:
    counts = np.zeros((55, 55, 55), np.int32)
    np.add.at(counts, tuple(side.reshape(-1, 3).T), 1)
    return counts > _LEAST * side.shape[0] * side.shape[1]


def _dilate(table: _Table, steps: int = 1) -> _Table:
    """And their neighbours; nothing lies at the ends, so nothing comes in at the others."""
    for _ in range(steps):
        table = np.logical_or.reduce([table, *(np.roll(table, by, axis) for axis in (0, 1, 2) for by in (1, -1))])
    return table
