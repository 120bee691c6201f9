"""ONNX networks on onnxruntime, the optional extra `onnx`: restorers and mattes.

A restorer is LaMa (`Carve/LaMa-ONNX/lama_fp32.onnx`), which fills holes, or any network from image to image. The input
with three channels is the image, (1, 3, H, W) in [0, 1]; another one is the mask, (1, 1, H, W), 1 where to repaint.
Graphs of a fixed size get the square around the mask, or the whole image without one, scaled; others get the image at
its size.

A matte is BiRefNet (`onnx-community/BiRefNet-ONNX/onnx/model.onnx`) or similar. Its input has one size and is
normalized with ImageNet's mean and deviation; its output has one channel, the subject's share of every pixel or its
logit.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from deployments.backend import JobError, NotFinite, OutOfMemory
from deployments.checkpoint_files import CheckpointError, network_file
from deployments.contract.model import MattingConfig, ModelSpec
from deployments.images import Pixels, resize

logger = logging.getLogger(__name__)

Floats = npt.NDArray[np.float32]

_PRECISIONS: Final[dict[str, type[np.floating[Any]]]] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_MULTIPLE: Final = 64
"""Multiple that sides are padded to if a restorer leaves them open, as networks halve them several times."""
_CONTEXT: Final = 2.0
"""Side of the input of a fixed-size restorer, in sides of the mask's box: it fills holes from their surroundings."""
_MAX_UNIT: Final = 2.0
"""Outputs above this are in [0, 255]; those in [0, 1] overshoot by less."""
_MATTE: Final = 1024
"""Pixels of sides that a matte leaves open."""
_MEAN: Final = np.array((0.485, 0.456, 0.406), np.float32)
_DEVIATION: Final = np.array((0.229, 0.224, 0.225), np.float32)


class OnnxNetwork:
    """A loaded graph. Not thread-safe."""

    def __init__(self, checkpoint: str, revision: str | None, device: str, threads: int | None = None) -> None:
        """Loads a file, or `owner/name/path/in/repository.onnx` at a revision on the model hub.

        `device` is `cpu`, `cuda`, `cuda:N`, or `auto`, a GPU if onnxruntime supports it. Raises CheckpointError,
        OutOfMemory.
        """
        try:
            import onnxruntime
        except ImportError as error:
            raise CheckpointError(f"{checkpoint} needs onnxruntime: pip install 'gen-serve[onnx]'") from error
        file = network_file(checkpoint, revision)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        # Threads that spin while they wait would slow down engines on the same machine.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = _providers(device, onnxruntime.get_available_providers())
        try:
            self._session: Any = onnxruntime.InferenceSession(str(file), options, providers=providers)
        except Exception as error:
            _check_memory(error)
            raise CheckpointError(f"{file} is no ONNX file that onnxruntime can run: {error}") from error
        self.name = checkpoint
        self.inputs = {each.name: each for each in self._session.get_inputs()}
        if strange := [each for each in self.inputs.values() if each.type not in _PRECISIONS]:
            raise CheckpointError(f"{checkpoint}: {strange[0].name} is a {strange[0].type}; images go in as floats")
        logger.info("%s on %s", checkpoint, self._session.get_providers()[0])

    def __str__(self) -> str:
        return f"{self.name} takes " + ", ".join(
            f"{name} {' x '.join('any' if side is None else str(side) for side in self.shape(name))}"
            for name in self.inputs
        )

    def shape(self, name: str) -> tuple[int | None, ...]:
        """Returns the shape of an input; None for open sides, which are named or negative."""
        return tuple(side if isinstance(side, int) and side > 0 else None for side in self.inputs[name].shape)

    def inputs_with_channels(self, channels: int) -> list[str]:
        """Returns the inputs for an image of `channels`."""
        shapes = {name: self.shape(name) for name in self.inputs}
        return [
            name
            for name, shape in shapes.items()
            if len(shape) == 4 and shape[0] in (None, 1) and shape[1] in (None, channels)
        ]

    def run(self, arrays: Mapping[str, npt.NDArray[np.floating]]) -> Floats:
        """Returns the first output for one array per input. Raises OutOfMemory."""
        inputs = {name: array.astype(_PRECISIONS[self.inputs[name].type]) for name, array in arrays.items()}
        try:
            first, *_ = self._session.run(None, inputs)
        except Exception as error:
            _check_memory(error)
            raise
        return np.asarray(first, np.float32)


class OnnxRestorer:
    """Implements Restorer."""

    def __init__(self, spec: ModelSpec) -> None:
        """Runs the graph once, to prove that it works and to find the range of its output. Raises CheckpointError."""
        self._network = OnnxNetwork(spec.checkpoint, spec.revision, spec.device, spec.threads)
        self._image, self._mask = _find_inputs(self._network)
        _, _, self._height, self._width = self._network.shape(self._image)
        self._range = 255.0 if self._probe().max() > _MAX_UNIT else 1.0

    def restore(self, image: Pixels, mask: Pixels | None) -> Pixels:
        if self._mask is None:
            return self._restore(image, None)
        if mask is None:
            raise JobError("this model needs a mask that says what is to be painted anew")
        if not mask.any():
            return image
        rows, columns = slice(None), slice(None)
        if self._height is not None and self._width is not None:
            rows, columns = _surroundings(mask, self._height, self._width)
        part, hole, result = image[rows, columns], mask[rows, columns], image.copy()
        result[rows, columns] = np.where(hole[..., None] >= 128, self._restore_square(part, hole), part)
        return result

    def _restore_square(self, image: Pixels, mask: Pixels) -> Pixels:
        """Restores a part of any ratio, padded to the graph's own by reflection, as squeezing would distort it."""
        rows, columns = image.shape[:2]
        height, width = self._height, self._width
        if height is None or width is None:
            return self._restore(image, mask)
        scale = max(rows / height, columns / width)
        whole = max(rows, round(scale * height)), max(columns, round(scale * width))
        return self._restore(_pad_reflect(image, *whole), _pad_reflect(mask, *whole))[:rows, :columns]

    def _restore(self, image: Pixels, mask: Pixels | None) -> Pixels:
        rows, columns = image.shape[:2]
        # Scaled before padding, which is only for open sides.
        size = self._height or rows, self._width or columns
        padded_size = self._height or rows + -rows % _MULTIPLE, self._width or columns + -columns % _MULTIPLE
        network_input = _pad_reflect(resize(image, size[1], size[0]), *padded_size)
        if mask is not None:  # grows when shrunk, so that thin lines are not lost
            coverage = np.asarray(
                cv2.resize((mask >= 128).astype(np.float32), size[::-1], interpolation=cv2.INTER_AREA)
            )
            mask = _pad_reflect((coverage > 0).astype(np.uint8), *padded_size)
        output = self._run(np.asarray(network_input.transpose(2, 0, 1)[None] / 255, np.float32), mask)
        if not np.isfinite(output).all():
            raise NotFinite(f"the output of {self._network.name} is not finite")
        levels = (output[0].transpose(1, 2, 0) * (255 / self._range)).round().clip(0, 255).astype(np.uint8)
        # Networks that enlarge have more pixels in their output.
        down, across = levels.shape[0] / padded_size[0], levels.shape[1] / padded_size[1]
        pixels = np.ascontiguousarray(levels[: round(size[0] * down), : round(size[1] * across)])
        return resize(pixels, columns, rows)

    def _run(self, image: Floats, mask: Pixels | None) -> Floats:
        """`mask` is 1 in the hole, else 0."""
        hole = {} if self._mask is None or mask is None else {self._mask: mask.astype(np.float32)[None, None]}
        return self._network.run({self._image: image, **hole})

    def _probe(self) -> Floats:
        """Returns the output for an image of all shades with a hole in it. Raises CheckpointError."""
        height, width = self._height or _MULTIPLE, self._width or _MULTIPLE
        shades = np.broadcast_to(np.linspace(0, 1, width, dtype=np.float32), (1, 3, height, width))
        hole = np.zeros((height, width), np.uint8)
        hole[height // 4 : height // 2, width // 4 : width // 2] = 1
        try:
            output = self._run(np.ascontiguousarray(shades), hole)
        except Exception as error:  # onnxruntime's exceptions have no common base
            raise CheckpointError(f"{self._network.name} can't be run with an image: {error}") from error
        if output.ndim != 4 or output.shape[:2] != (1, 3):
            raise CheckpointError(f"{self._network.name} gives {output.shape} and no image of 1 x 3 x height x width")
        return output


class OnnxBackgroundRemover:
    """Implements BackgroundRemover."""

    def __init__(self, spec: MattingConfig) -> None:
        """Raises CheckpointError."""
        if spec.checkpoint is None:
            raise CheckpointError("matting by onnx needs a checkpoint: a file, or owner/name/file on the model hub")
        self._network = OnnxNetwork(spec.checkpoint, spec.revision, spec.device)
        if len(self._network.inputs) != 1 or not (names := self._network.inputs_with_channels(3)):
            raise CheckpointError(f"{self._network}; a matting network takes 1 x 3 x height x width")
        self._name = names[0]
        _, _, height, width = self._network.shape(self._name)
        self._size = width or _MATTE, height or _MATTE

    def alpha(self, image: Pixels) -> Pixels:
        height, width = image.shape[:2]
        small = np.asarray(cv2.resize(image, self._size, interpolation=cv2.INTER_AREA), np.float32)
        output = self._network.run({self._name: ((small / 255 - _MEAN) / _DEVIATION).transpose(2, 0, 1)[None]})
        matte = output.reshape(output.shape[-2:])
        if matte.min() < 0 or matte.max() > 1:  # logits
            matte = 1 / (1 + np.exp(-matte.clip(-30, 30)))
        if not (matte >= 0.5).any():
            return np.full((height, width), 255, np.uint8)
        return np.asarray(cv2.resize((matte * 255).round().astype(np.uint8), (width, height)), np.uint8)


def _find_inputs(network: OnnxNetwork) -> tuple[str, str | None]:
    """Returns the names of the image and the mask. Raises CheckpointError."""
    for image in network.inputs_with_channels(3):
        match [name for name in network.inputs if name != image]:
            case []:
                return image, None
            case [mask] if (
                mask in network.inputs_with_channels(1) and network.shape(mask)[2:] == network.shape(image)[2:]
            ):
                return image, mask
    raise CheckpointError(f"{network}; a restorer takes 1 x 3 x height x width, and 1 x 1 of a mask")


def _surroundings(mask: Pixels, height: int, width: int) -> tuple[slice, slice]:
    """Returns the part of the image with the mask and its surroundings, in the graph's ratio if that fits."""
    left, top, across, down = cv2.boundingRect(mask)
    # At least the graph's own size, so that nothing is enlarged.
    scale = max(1.0, _CONTEXT * down / height, _CONTEXT * across / width)
    middles = top + down / 2, left + across / 2
    lengths = [min(round(scale * side), whole) for side, whole in zip((height, width), mask.shape, strict=True)]
    starts = [
        min(max(0, int(middle - length / 2)), whole - length)
        for middle, length, whole in zip(middles, lengths, mask.shape, strict=True)
    ]
    return slice(starts[0], starts[0] + lengths[0]), slice(starts[1], starts[1] + lengths[1])


def _pad_reflect(pixels: Pixels, rows: int, columns: int) -> Pixels:
    """Pads at the bottom and on the right by reflection."""
    bottom, right = rows - pixels.shape[0], columns - pixels.shape[1]
    return np.asarray(cv2.copyMakeBorder(pixels, 0, bottom, 0, right, cv2.BORDER_REFLECT), np.uint8)


def _check_memory(error: Exception) -> None:
    """Raises OutOfMemory for an error of memory, by its text, as onnxruntime's exceptions have no common base."""
    if "allocate memory" in str(error):
        raise OutOfMemory from None


def _providers(device: str, available: list[str]) -> list[Any]:
    device_type, _, number = device.partition(":")
    if device_type in ("auto", "cuda") and "CUDAExecutionProvider" in available:
        return [("CUDAExecutionProvider", {"device_id": int(number or 0)}), "CPUExecutionProvider"]
    if device_type == "cuda":
        logger.warning("this onnxruntime has no CUDA (that is onnxruntime-gpu); the network runs on the CPU")
    return ["CPUExecutionProvider"]
