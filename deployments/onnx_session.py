"""Runs networks that are stored as ONNX, on onnxruntime, which is the optional extra `onnx`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from deployments.checkpoint_files import CheckpointError, network_file
from deployments.engine.backend import OutOfMemory

logger = logging.getLogger(__name__)

Floats = npt.NDArray[np.float32]

_PRECISIONS: Final[dict[str, type[np.floating[Any]]]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
}


@dataclass(frozen=True, slots=True)
class Input:
    name: str
    shape: tuple[int | None, ...]
    """Of (batch, channels, height, width); None is any."""
    precision: type[np.floating[Any]]

    def takes(self, channels: int) -> bool:
        """Whether one picture of so many channels goes in."""
        return len(self.shape) == 4 and self.shape[0] in (None, 1) and self.shape[1] in (None, channels)

    @property
    def size(self) -> tuple[int | None, int | None]:
        """Height and width."""
        return self.shape[2], self.shape[3]

    def __str__(self) -> str:
        return f"{self.name} {' x '.join('any' if side is None else str(side) for side in self.shape)}"


class Graph:
    """A loaded network. Use it from one thread at a time."""

    def __init__(self, name: str, session: Any) -> None:
        """Raises CheckpointError for inputs of a type that pictures can't have."""
        self.name = name
        self._session = session
        self.inputs = tuple(_input(name, given) for given in session.get_inputs())

    def run(self, *arrays: Floats) -> Floats:
        """The first output, for one array per input, in order. Raises OutOfMemory."""
        given = zip(self.inputs, arrays, strict=True)
        try:
            first, *_ = self._session.run(None, {one.name: array.astype(one.precision) for one, array in given})
        except Exception as error:
            _check_memory(error)
            raise
        return np.asarray(first, np.float32)


def opened(checkpoint: str, *, revision: str | None = None, device: str = "auto", threads: int | None = None) -> Graph:
    """The network in a file, or in `owner/name/path/in/repository.onnx` on the model hub, at that revision.

    `device` is `cpu`, `cuda`, `cuda:N`, or `auto`: a GPU where onnxruntime has one. Raises CheckpointError,
    OutOfMemory.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise CheckpointError(f"{checkpoint} needs onnxruntime: pip install 'gen-serve[onnx]'") from error
    file = network_file(checkpoint, revision)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    # Threads that spin while they wait take the cores from the engines beside this one.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers = _providers(device, onnxruntime.get_available_providers())
    try:
        session = onnxruntime.InferenceSession(str(file), options, providers=providers)
    except Exception as error:
        _check_memory(error)
        raise CheckpointError(f"{file} is no ONNX file that onnxruntime can run: {error}") from error
    logger.info("%s on %s", checkpoint, session.get_providers()[0])
    return Graph(checkpoint, session)


def _check_memory(error: Exception) -> None:
    """Raises OutOfMemory if it is that: no class of its own says so, and onnxruntime's have no base in common."""
    if "allocate memory" in str(error):
        raise OutOfMemory from None


def _providers(device: str, available: list[str]) -> list[Any]:
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cuda"):
        return ["CPUExecutionProvider"]
    if "CUDAExecutionProvider" not in available:
        if kind == "cuda":
            logger.warning("this onnxruntime has no CUDA (that is onnxruntime-gpu); the network runs on the CPU")
        return ["CPUExecutionProvider"]
    return [("CUDAExecutionProvider", {"device_id": int(number or 0)}), "CPUExecutionProvider"]


def _input(name: str, given: Any) -> Input:
    if given.type not in _PRECISIONS:
        raise CheckpointError(f"{name}: its input {given.name} is a {given.type}; pictures go in as floats")
    # Sides that are not fixed are named or negative.
    shape = tuple(side if isinstance(side, int) and side > 0 else None for side in given.shape)
    return Input(given.name, shape, _PRECISIONS[given.type])
