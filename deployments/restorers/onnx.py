"""Restores pictures by a network in ONNX: LaMa (`Carve/LaMa-ONNX/lama_fp32.onnx`) for holes, and any that takes a
picture and gives one.

The first input, or the one with three channels, is the picture, (1, 3, H, W) in [0, 1]; a second one is the mask,
(1, 1, H, W), 1 where it is to be painted anew. Graphs of a fixed size see the square around the mask, or the whole
picture where there is none, scaled; others see the picture at its size.
"""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import ModelSpec
from deployments.engine.backend import JobError, NotFinite
from deployments.onnx_session import Floats, Graph, Input, opened
from deployments.pictures.pixels import Pixels, resize

_MULTIPLE: Final = 64
"""Sides that a graph leaves open are padded to a multiple: networks halve them several times."""
_PROBE_SIDE: Final = 64
_AROUND: Final = 2.0
"""Side of what a graph of a fixed size sees, in sides of the mask's box: it fills by what is around."""
_BRIGHTEST: Final = 2.0
"""Outputs that rise above it are in [0, 255]; those in [0, 1] overshoot by less."""


class OnnxRestorer:
    """Implements restorers.restorer.Restorer."""

    def __init__(self, spec: ModelSpec) -> None:
        """Raises CheckpointError. The graph is run once: that shows that it fits and which range its output has."""
        self._graph = opened(spec.checkpoint, revision=spec.revision, device=spec.device, threads=spec.threads)
        self._picture, self._mask = _roles(self._graph)
        self._range = 255.0 if self._probe().max() > _BRIGHTEST else 1.0

    def restore(self, picture: Pixels, mask: Pixels | None) -> Pixels:
        if self._mask is None:
            return self._whole(picture, None)
        if mask is None:
            raise JobError("this model needs a mask that says what is to be painted anew")
        if not mask.any():
            return picture
        height, width = self._picture.size
        if height is None or width is None:
            return _pasted(picture, self._whole(picture, mask), mask)
        result = picture.copy()
        rows, columns = _around(mask, height, width)
        result[rows, columns] = _pasted(
            picture[rows, columns], self._square(picture[rows, columns], mask[rows, columns]), mask[rows, columns]
        )
        return result

    def _square(self, picture: Pixels, mask: Pixels) -> Pixels:
        """A part of any ratio, first reflected to the graph's own, as things look wrong to it when squeezed."""
        rows, columns = picture.shape[:2]
        height, width = self._picture.size
        assert height is not None
        assert width is not None
        scale = max(rows / height, columns / width)
        whole = max(rows, round(scale * height)), max(columns, round(scale * width))
        return self._whole(_extended(picture, *whole), _extended(mask, *whole))[:rows, :columns]

    def _whole(self, picture: Pixels, mask: Pixels | None) -> Pixels:
        rows, columns = picture.shape[:2]
        height, width = self._picture.size
        # What is to be scaled is scaled first: reflecting is for the sides that have no size.
        scaled = height or rows, width or columns
        padded = height or rows + -rows % _MULTIPLE, width or columns + -columns % _MULTIPLE
        seen = _extended(resize(picture, scaled[1], scaled[0]), *padded)
        hole = None if mask is None else _extended(_scaled_mask(mask, *scaled), *padded)
        drawn = self._run(seen, hole)
        # Networks that also enlarge give more pixels than they got.
        down, across = drawn.shape[0] / padded[0], drawn.shape[1] / padded[1]
        return resize(drawn[: round(scaled[0] * down), : round(scaled[1] * across)], columns, rows)

    def _run(self, picture: Pixels, mask: Pixels | None) -> Pixels:
        planes = np.asarray(picture.transpose(2, 0, 1)[None] / 255, np.float32)
        drawn = self._output(planes, None if mask is None else (mask >= 128).astype(np.float32)[None, None])
        if not np.isfinite(drawn).all():
            raise NotFinite(f"what {self._graph.name} gives is not finite")
        levels = (drawn[0].transpose(1, 2, 0) * (255 / self._range)).round()
        return np.ascontiguousarray(levels.clip(0, 255), np.uint8)

    def _output(self, picture: Floats, mask: Floats | None) -> Floats:
        if mask is None:
            return self._graph.run(picture)
        return self._graph.run(*(picture if one is self._picture else mask for one in self._graph.inputs))

    def _probe(self) -> Floats:
        """What comes of a picture of all shades with a hole in it. Raises CheckpointError."""
        height, width = (side or _PROBE_SIDE for side in self._picture.size)
        shades = np.broadcast_to(np.linspace(0, 1, width, dtype=np.float32), (1, 3, height, width))
        hole = np.zeros((1, 1, height, width), np.float32)
        hole[..., height // 4 : height // 2, width // 4 : width // 2] = 1
        try:
            drawn = self._output(np.ascontiguousarray(shades), None if self._mask is None else hole)
        except Exception as error:  # onnxruntime's own classes have no base in common
            raise CheckpointError(f"{self._graph.name} can't be run with a picture: {error}") from error
        if drawn.ndim != 4 or drawn.shape[:2] != (1, 3):
            raise CheckpointError(f"{self._graph.name} gives {drawn.shape} and no picture of 1 x 3 x height x width")
        return drawn


def _roles(graph: Graph) -> tuple[Input, Input | None]:
    """Which input is the picture and which the mask. Raises CheckpointError."""
    match graph.inputs:
        case (picture,) if picture.takes(3):
            return picture, None
        case (picture, mask) if picture.takes(3) and mask.takes(1) and picture.size == mask.size:
            return picture, mask
        case (mask, picture) if picture.takes(3) and mask.takes(1) and picture.size == mask.size:
            return picture, mask
    given = ", ".join(map(str, graph.inputs))
    raise CheckpointError(f"{graph.name} takes {given}; a restorer takes 1 x 3 x height x width, and 1 x 1 of a mask")


def _around(mask: Pixels, height: int, width: int) -> tuple[slice, slice]:
    """The part of the picture that holds the mask and what is around, in the graph's ratio where it fits."""
    (top, bottom), (left, right) = (_span(np.asarray(mask.any(axis))) for axis in (1, 0))
    # Not smaller than the graph's own size, so that nothing is enlarged for it.
    scale = max(1.0, _AROUND * (bottom - top) / height, _AROUND * (right - left) / width)
    return (
        _centred(top, bottom, round(scale * height), mask.shape[0]),
        _centred(left, right, round(scale * width), mask.shape[1]),
    )


def _span(marked: npt.NDArray[np.bool_]) -> tuple[int, int]:
    places = np.flatnonzero(marked)
    return int(places[0]), int(places[-1]) + 1


def _centred(first: int, last: int, length: int, whole: int) -> slice:
    """So long a slice around [first, last), moved inside."""
    length = min(length, whole)
    start = min(max(0, (first + last - length) // 2), whole - length)
    return slice(start, start + length)


def _extended(pixels: Pixels, rows: int, columns: int) -> Pixels:
    """Reflected at the bottom and on the right, mask and picture alike."""
    below, beside = rows - pixels.shape[0], columns - pixels.shape[1]
    if not below and not beside:
        return pixels
    return np.asarray(cv2.copyMakeBorder(pixels, 0, below, 0, beside, cv2.BORDER_REFLECT), np.uint8)


def _scaled_mask(mask: Pixels, rows: int, columns: int) -> Pixels:
    """Grown rather than lost where it shrinks: a thin line is a mask, too."""
    if mask.shape == (rows, columns):
        return mask
    share = np.asarray(cv2.resize(mask.astype(np.float32), (columns, rows), interpolation=cv2.INTER_AREA))
    return np.where(share > 0, 255, 0).astype(np.uint8)


def _pasted(picture: Pixels, drawn: Pixels, mask: Pixels) -> Pixels:
    return np.where(mask[..., None] >= 128, drawn, picture)
