from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, checker, helper, numpy_helper, save

from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import MattingSpec
from deployments.matting.background_remover import BackgroundRemover, load_background_remover
from deployments.pictures.pixels import Pixels

MEAN, DEVIATION = np.array((0.485, 0.456, 0.406), np.float32), np.array((0.229, 0.224, 0.225), np.float32)


def brightness(path: Path, side: int | str, logits: bool, channels: int = 3) -> Path:
    """A network whose subject is what is bright in the red channel: its share is 1 where red is above a half."""
    weights = np.zeros((1, channels, 1, 1), np.float32)
    weights[0, 0] = DEVIATION[0]
    bias = np.array([MEAN[0] - 0.5], np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "weights", "bias"], ["red"]),
        helper.make_node("Mul", ["red", "steep"], ["out" if logits else "logit"]),
    ]
    if not logits:
        nodes.append(helper.make_node("Sigmoid", ["logit"], ["out"]))
    graph = helper.make_graph(
        nodes,
        "brightness",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, channels, side, side))],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, (1, 1, side, side))],
        [
            numpy_helper.from_array(value, name)
            for name, value in {"weights": weights, "bias": bias, "steep": np.array(40, np.float32)}.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    checker.check_model(model)
    save(model, str(path))
    return path


def loaded(file: Path | None) -> BackgroundRemover:
    return load_background_remover(MattingSpec("onnx", None if file is None else str(file), device="cpu"))


def picture() -> Pixels:
    """Red above a half on the left, blue on the right."""
    pixels = np.zeros((120, 200, 3), np.uint8)
    pixels[:, :100, 0] = 220
    pixels[:, 100:, 2] = 220
    return pixels


@pytest.mark.parametrize("side", [64, "side"])
@pytest.mark.parametrize("logits", [False, True])
def test_the_networks_subject_is_opaque_and_the_rest_is_not(tmp_path: Path, side: int | str, logits: bool) -> None:
    alpha = loaded(brightness(tmp_path / "red.onnx", side, logits)).alpha(picture())
    assert alpha.shape == (120, 200)
    assert alpha.dtype == np.uint8
    assert (alpha[:, :95] >= 254).all()
    assert (alpha[:, 105:] <= 1).all()


def test_a_picture_without_a_subject_stays_opaque(tmp_path: Path) -> None:
    alpha = loaded(brightness(tmp_path / "red.onnx", 64, logits=True)).alpha(np.zeros((50, 60, 3), np.uint8))
    assert (alpha == 255).all()


def test_what_is_no_matter_is_told_at_loading(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="needs a checkpoint"):
        loaded(None)
    with pytest.raises(CheckpointError, match="1 x 4 x 64 x 64"):
        loaded(brightness(tmp_path / "four.onnx", 64, logits=True, channels=4))
    with pytest.raises(CheckpointError, match="neither a file here"):
        loaded(tmp_path / "gone.onnx")
