"""Cuts the subject out by a network in ONNX: BiRefNet (`onnx-community/BiRefNet-ONNX/onnx/model.onnx`) and its like.

The picture goes in as they were trained on it, at one size and with ImageNet's mean and deviation taken out; what comes
out is the subject's share of every pixel, or its logit. Only graphs that put out a single channel fit.
"""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np

from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import MattingSpec
from deployments.onnx_session import Floats, opened
from deployments.pictures.pixels import Pixels

_SIZE: Final = 1024
"""Of the sides that a graph leaves open."""
_MEAN: Final = np.array((0.485, 0.456, 0.406), np.float32)
_DEVIATION: Final = np.array((0.229, 0.224, 0.225), np.float32)


class OnnxBackgroundRemover:
    """Implements matting.background_remover.BackgroundRemover."""

    def __init__(self, spec: MattingSpec) -> None:
        """Raises CheckpointError."""
        if spec.checkpoint is None:
            raise CheckpointError("matting by onnx needs a checkpoint: a file, or owner/name/file on the model hub")
        self._graph = opened(spec.checkpoint, revision=spec.revision, device=spec.device)
        if len(self._graph.inputs) != 1 or not self._graph.inputs[0].takes(3):
            given = ", ".join(map(str, self._graph.inputs))
            raise CheckpointError(f"{spec.checkpoint} takes {given}; a matting network takes 1 x 3 x height x width")
        height, width = self._graph.inputs[0].size
        self._size = height or _SIZE, width or _SIZE

    def alpha(self, picture: Pixels) -> Pixels:
        height, width = picture.shape[:2]
        rows, columns = self._size
        small = np.asarray(cv2.resize(picture, (columns, rows), interpolation=cv2.INTER_AREA), np.float32)
        planes = np.asarray(((small / 255 - _MEAN) / _DEVIATION).transpose(2, 0, 1)[None], np.float32)
        share = _share(self._graph.run(planes))
        if not (share >= 0.5).any():
            return np.full((height, width), 255, np.uint8)
        return np.asarray(cv2.resize((share * 255).round().astype(np.uint8), (width, height)), np.uint8)


def _share(output: Floats) -> Floats:
    """(H, W) in [0, 1] of (1, 1, H, W) or (1, H, W). Values beyond [0, 1] can only be logits."""
    plane = output.reshape(output.shape[-2:])
    if plane.min() >= 0 and plane.max() <= 1:
        return plane
    return np.asarray(1 / (1 + np.exp(-plane.clip(-30, 30))), np.float32)
