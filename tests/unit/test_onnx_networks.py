"""Restorers and background removers in ONNX, on small networks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import checker, numpy_helper, parser, save
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, RuntimeException

from deployments.backend import JobError, NotFinite, OutOfMemory
from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import MattingConfig, ModelSpec
from deployments.images import Pixels
from deployments.matting import BackgroundRemover, load_background_remover
from deployments.onnx_networks import OnnxNetwork
from deployments.restorers import Restorer, load_restorer

ANY = "1, 3, height, width"


def save_graph(path: Path, inputs: str, output: str, body: str, **constants: npt.ArrayLike) -> Path:
    """Writes a graph in ONNX' text syntax, with constants in the type of its first input."""
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 17]> small ({inputs}) => ({output} out) {{ {body} }}'
    )
    dtype = np.float16 if inputs.startswith("float16") else np.float32
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value, dtype), name) for name, value in constants.items()
    )
    checker.check_model(model)
    save(model, str(path))
    return path


def scaling(path: Path, shape: str, factor: float = 0.5, kind: str = "float") -> Path:
    """Writes a network that multiplies images."""
    return save_graph(path, f"{kind}[{shape}] image", f"{kind}[{shape}]", "out = Mul(image, factor)", factor=factor)


def greying(path: Path, sides: str, brightest: float = 1.0, mask_first: bool = False) -> Path:
    """Writes a network that paints masked pixels grey."""
    inputs = [f"float[1, 3, {sides}] image", f"float[1, 1, {sides}] mask"]
    body = (
        "kept = Sub(one, mask) around = Mul(image, kept) inside = Mul(mask, grey) "
        "both = Add(around, inside) out = Mul(both, brightest)"
    )
    ordered = ", ".join(reversed(inputs) if mask_first else inputs)
    return save_graph(path, ordered, f"float[1, 3, {sides}]", body, one=1, grey=0.5, brightest=brightest)


def restorer(file: Path | str) -> Restorer:
    return load_restorer(
        ModelSpec(checkpoint=str(file), objects_url="memory:///", backend="onnx", device="cpu", threads=1)
    )


def image(height: int, width: int) -> Pixels:
    """Returns a smooth image, which scaling there and back hardly changes."""
    y, x = np.mgrid[:height, :width]
    return np.dstack((128 + 90 * np.sin(x / 40), 128 + 90 * np.cos(y / 50), 60 + 40 * np.sin((x + y) / 60))).astype(
        np.uint8
    )


def make_mask(height: int, width: int) -> Pixels:
    mask = np.zeros((height, width), np.uint8)
    mask[height // 2 : height // 2 + 20, 5:35] = 255
    return mask


@pytest.mark.parametrize(("kind", "size"), [("float", (7, 5)), ("float", (129, 300)), ("float16", (64, 64))])
def test_dynamic_graph_takes_any_size_and_precision(tmp_path: Path, kind: str, size: tuple[int, int]) -> None:
    pixels = image(*size)
    output = restorer(scaling(tmp_path / "half.onnx", ANY, kind=kind)).restore(pixels, None)
    assert np.abs(output.astype(float) - pixels / 2).max() <= 1


def test_padding_repeats_the_rim(tmp_path: Path) -> None:
    pixels, weights = np.full((50, 70, 3), 200, np.uint8), np.zeros((3, 3, 3, 3))
    for channel in range(3):
        weights[channel, channel] = 1 / 9
    body = "out = Conv <pads = [1, 1, 1, 1]> (image, weights)"
    file = save_graph(tmp_path / "mean.onnx", f"float[{ANY}] image", f"float[{ANY}]", body, weights=weights)
    output = restorer(file).restore(pixels, None)
    assert (output[1:, 1:] == 200).all()


@pytest.mark.parametrize("size", [(64, 96), (200, 150)])
def test_fixed_graph_gives_the_inputs_size(tmp_path: Path, size: tuple[int, int]) -> None:
    pixels = image(*size)
    output = restorer(scaling(tmp_path / "half.onnx", "1, 3, 64, 96")).restore(pixels, None)
    assert output.shape == pixels.shape
    assert np.abs(output.astype(float) - pixels / 2).mean() < 2


@pytest.mark.parametrize(("brightest", "mask_first"), [(1.0, False), (255.0, True)])
@pytest.mark.parametrize("sides", ["height, width", "64, 64", "64, 128"])
def test_only_masked_pixels_are_painted(tmp_path: Path, brightest: float, mask_first: bool, sides: str) -> None:
    network = restorer(greying(tmp_path / "grey.onnx", sides, brightest, mask_first))
    for size in ((64, 64), (48, 200), (300, 260)):
        pixels, mask = image(*size), make_mask(*size)
        output = network.restore(pixels, mask)
        assert np.array_equal(output[mask == 0], pixels[mask == 0])
        inside = np.asarray(cv2.erode(mask, np.ones((5, 5), np.uint8))) > 0
        assert np.abs(output[inside].astype(int) - 128).max() <= 6


def test_dark_image_stays_dark_in_every_range(tmp_path: Path) -> None:
    """The graph sets the range; one image does not show it."""
    dark = np.full((64, 64, 3), 1, np.uint8)
    output = restorer(greying(tmp_path / "grey.onnx", "64, 64", brightest=255.0)).restore(dark, make_mask(64, 64))
    assert output[0].max() <= 1
    assert restorer(scaling(tmp_path / "same.onnx", ANY, factor=255.0)).restore(dark, None).max() <= 1


def test_enlarging_graph_gives_the_inputs_size(tmp_path: Path) -> None:
    body = 'out = Resize <mode = "nearest"> (image, , scales)'
    inputs, twice = f"float[{ANY}] image", "float[1, 3, tall, wide]"
    file = save_graph(tmp_path / "double.onnx", inputs, twice, body, scales=(1, 1, 2, 2))
    pixels = image(50, 70)
    output = restorer(file).restore(pixels, None)
    assert np.abs(output.astype(int) - pixels).max() <= 1


def test_mask_is_required_only_by_graphs_that_take_one(tmp_path: Path) -> None:
    pixels = image(64, 64)
    network = restorer(greying(tmp_path / "grey.onnx", "64, 64"))
    with pytest.raises(JobError, match="mask"):
        network.restore(pixels, None)
    assert np.array_equal(network.restore(pixels, np.zeros((64, 64), np.uint8)), pixels)
    output = restorer(scaling(tmp_path / "half.onnx", ANY)).restore(pixels, make_mask(64, 64))
    assert np.abs(output.astype(float) - pixels / 2).max() <= 1


def test_unusable_restorer_fails_the_load(tmp_path: Path) -> None:
    same, grey = "out = Identity(image)", "out = ReduceMean <axes = [1], keepdims = 1> (image)"
    inputs, one_channel = f"float[{ANY}] image", "float[1, 1, height, width]"
    (tmp_path / "text.onnx").write_text("no graph")
    for file, message in (
        (scaling(tmp_path / "channels.onnx", "1, 5, 8, 8"), "1 x 5 x 8 x 8"),
        (save_graph(tmp_path / "integers.onnx", f"int64[{ANY}] image", f"int64[{ANY}]", same), "as floats"),
        (save_graph(tmp_path / "mean.onnx", inputs, one_channel, grey), "no image"),
        (tmp_path / "text.onnx", "no ONNX file"),
        ("", "owner/name/path/to/file"),
        ("/nowhere/a.onnx", "owner/name/path/to/file"),
        ("owner/name", "owner/name/path/to/file"),
    ):
        with pytest.raises(CheckpointError, match=message):
            restorer(file)


def test_offline_hub_is_a_checkpoint_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="the model hub did not give it"):
        restorer("nobody/nothing/model.onnx")


def test_nan_image_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFinite):
        restorer(scaling(tmp_path / "nan.onnx", ANY, factor=float("nan"))).restore(image(64, 64), None)


def brightness(path: Path, side: int | str, logits: bool, channels: int = 3) -> Path:
    """Writes a network whose subject is where red is above a half."""
    # Undoes ImageNet's deviation and mean of red.
    weights = np.zeros((1, channels, 1, 1))
    weights[0, 0] = 0.229
    body = "red = Conv(image, weights, bias) " + (
        "out = Mul(red, steep)" if logits else "logit = Mul(red, steep) out = Sigmoid(logit)"
    )
    inputs, output = f"float[1, {channels}, {side}, {side}] image", f"float[1, 1, {side}, {side}]"
    return save_graph(path, inputs, output, body, weights=weights, bias=[0.485 - 0.5], steep=40)


def matte(file: Path | None) -> BackgroundRemover:
    return load_background_remover(
        MattingConfig(backend="onnx", checkpoint=None if file is None else str(file), device="cpu")
    )


def two_halves() -> Pixels:
    """Returns an image that is red on the left and blue on the right."""
    pixels = np.zeros((120, 200, 3), np.uint8)
    pixels[:, :100, 0] = 220
    pixels[:, 100:, 2] = 220
    return pixels


@pytest.mark.parametrize("side", [64, "side"])
@pytest.mark.parametrize("logits", [False, True])
def test_only_the_networks_subject_is_opaque(tmp_path: Path, side: int | str, logits: bool) -> None:
    alpha = matte(brightness(tmp_path / "red.onnx", side, logits)).alpha(two_halves())
    assert alpha.shape == (120, 200)
    assert alpha.dtype == np.uint8
    assert (alpha[:, :95] >= 254).all()
    assert (alpha[:, 105:] <= 1).all()
    nothing = matte(tmp_path / "red.onnx").alpha(np.zeros((50, 60, 3), np.uint8))
    assert (nothing == 255).all(), "without a subject it stays opaque"


def test_unusable_matting_network_fails_the_load(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="needs a checkpoint"):
        matte(None)
    with pytest.raises(CheckpointError, match="1 x 4 x 64 x 64"):
        matte(brightness(tmp_path / "four.onnx", 64, logits=True, channels=4))
    with pytest.raises(CheckpointError, match="neither a file here"):
        matte(tmp_path / "gone.onnx")


FULL = "BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 1048576"


@pytest.mark.parametrize("kind", [Fail, RuntimeException, RuntimeError])
def test_run_without_memory_is_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    network = OnnxNetwork(str(scaling(tmp_path / "half.onnx", ANY)), None, "cpu")
    for message, raised in ((FULL, OutOfMemory), ("something else", kind)):

        def run(*args: Any, message: str = message) -> None:
            raise kind(message)

        monkeypatch.setattr(network, "_session", SimpleNamespace(run=run))
        with pytest.raises(raised):
            network.run({"image": np.zeros((1, 3, 8, 8), np.float32)})


@pytest.mark.parametrize(("message", "raised"), [(FULL, OutOfMemory), ("no such operator", CheckpointError)])
def test_load_without_memory_is_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str, raised: type[Exception]
) -> None:
    def full(*args: Any, **how: Any) -> None:
        raise Fail(message)

    monkeypatch.setattr(onnxruntime, "InferenceSession", full)
    with pytest.raises(raised):
        restorer(scaling(tmp_path / "half.onnx", ANY))
