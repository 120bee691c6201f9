"""Small networks in ONNX, as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper, save

Shape = Sequence[int | str]


def saved(
    path: Path,
    nodes: Sequence[NodeProto],
    inputs: dict[str, Shape],
    output: Shape,
    constants: Mapping[str, npt.NDArray[np.floating[Any]]] | None = None,
    kind: int = TensorProto.FLOAT,
) -> Path:
    """`nodes` lead from the inputs to `out`."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("out", kind, output)],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    checker.check_model(model)
    save(model, str(path))
    return path


def scaling(path: Path, shape: Shape, factor: float = 0.5, kind: int = TensorProto.FLOAT) -> Path:
    """A network that multiplies pictures."""
    dtype = np.float16 if kind == TensorProto.FLOAT16 else np.float32
    nodes = [helper.make_node("Mul", ["image", "factor"], ["out"])]
    return saved(path, nodes, {"image": shape}, shape, {"factor": np.array(factor, dtype)}, kind)


def convolving(path: Path, shape: Shape) -> Path:
    """The mean of 3 x 3 pixels in each channel."""
    weights = np.zeros((3, 3, 3, 3), np.float32)
    for channel in range(3):
        weights[channel, channel] = 1 / 9
    nodes = [helper.make_node("Conv", ["image", "weights"], ["out"], pads=[1, 1, 1, 1])]
    return saved(path, nodes, {"image": shape}, shape, {"weights": weights})


def greying(path: Path, height: int | str, width: int | str, brightest: float = 1.0, mask_first: bool = False) -> Path:
    """A network that paints what is masked grey."""
    nodes = [
        helper.make_node("Sub", ["one", "mask"], ["kept"]),
        helper.make_node("Mul", ["image", "kept"], ["around"]),
        helper.make_node("Mul", ["mask", "grey"], ["inside"]),
        helper.make_node("Add", ["around", "inside"], ["both"]),
        helper.make_node("Mul", ["both", "brightest"], ["out"]),
    ]
    inputs: dict[str, Shape] = {"image": (1, 3, height, width), "mask": (1, 1, height, width)}
    if mask_first:
        inputs = dict(reversed(inputs.items()))
    constants = {
        "one": np.array(1, np.float32),
        "grey": np.array(0.5, np.float32),
        "brightest": np.array(brightest, np.float32),
    }
    return saved(path, nodes, inputs, (1, 3, height, width), constants)
