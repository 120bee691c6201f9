from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_files import convolving, greying, saved, scaling

from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import ModelSpec
from deployments.engine.backend import JobError, NotFinite
from deployments.pictures.pixels import Pixels
from deployments.restorers.restorer import Restorer, load_restorer

ANY = (1, 3, "height", "width")


def restorer(file: Path | str) -> Restorer:
    return load_restorer(
        ModelSpec(checkpoint=str(file), objects_url="memory:///", backend="onnx", device="cpu", threads=1)
    )


def picture(height: int, width: int) -> Pixels:
    """Smooth, so that scaling it there and back changes little."""
    y, x = np.mgrid[:height, :width]
    return np.dstack((128 + 90 * np.sin(x / 40), 128 + 90 * np.cos(y / 50), 60 + 40 * np.sin((x + y) / 60))).astype(
        np.uint8
    )


def masked(height: int, width: int) -> Pixels:
    mask = np.zeros((height, width), np.uint8)
    mask[height // 2 : height // 2 + 20, 5:35] = 255
    return mask


@pytest.mark.parametrize("size", [(64, 64), (50, 70), (7, 5), (129, 300)])
def test_any_size_goes_through_a_graph_of_any_size(tmp_path: Path, size: tuple[int, int]) -> None:
    pixels = picture(*size)
    drawn = restorer(scaling(tmp_path / "half.onnx", ANY)).restore(pixels, None)
    assert np.abs(drawn.astype(float) - pixels / 2).max() <= 1


def test_a_convolution_sees_no_black_rim(tmp_path: Path) -> None:
    pixels = np.full((50, 70, 3), 200, np.uint8)
    drawn = restorer(convolving(tmp_path / "mean.onnx", ANY)).restore(pixels, None)
    assert (drawn[1:, 1:] == 200).all()


@pytest.mark.parametrize("size", [(64, 96), (200, 150)])
def test_a_graph_of_a_fixed_size_gives_the_size_that_came(tmp_path: Path, size: tuple[int, int]) -> None:
    pixels = picture(*size)
    drawn = restorer(scaling(tmp_path / "half.onnx", (1, 3, 64, 96))).restore(pixels, None)
    assert drawn.shape == pixels.shape
    assert np.abs(drawn.astype(float) - pixels / 2).mean() < 2


def test_half_precision(tmp_path: Path) -> None:
    pixels = picture(64, 64)
    drawn = restorer(scaling(tmp_path / "half.onnx", ANY, kind=TensorProto.FLOAT16)).restore(pixels, None)
    assert np.abs(drawn.astype(float) - pixels / 2).max() <= 1


@pytest.mark.parametrize("brightest", [1.0, 255.0])
@pytest.mark.parametrize("mask_first", [False, True])
@pytest.mark.parametrize("sides", [("height", "width"), (64, 64), (64, 128)])
def test_only_what_is_masked_is_painted(
    tmp_path: Path, brightest: float, mask_first: bool, sides: tuple[int | str, int | str]
) -> None:
    file = greying(tmp_path / "grey.onnx", *sides, brightest=brightest, mask_first=mask_first)
    network = restorer(file)
    for size in ((64, 64), (48, 200), (300, 260)):
        pixels, mask = picture(*size), masked(*size)
        drawn = network.restore(pixels, mask)
        assert np.array_equal(drawn[mask == 0], pixels[mask == 0])
        inside = np.asarray(cv2.erode(mask, np.ones((5, 5), np.uint8))) > 0
        assert np.abs(drawn[inside].astype(int) - 128).max() <= 6


def test_a_dark_picture_stays_dark_whatever_the_range(tmp_path: Path) -> None:
    """The range is the graph's, and not to be guessed from every picture."""
    dark = np.full((64, 64, 3), 1, np.uint8)
    drawn = restorer(greying(tmp_path / "grey.onnx", 64, 64, brightest=255.0)).restore(dark, masked(64, 64))
    assert drawn[0].max() <= 1
    assert restorer(scaling(tmp_path / "same.onnx", ANY, factor=255.0)).restore(dark, None).max() <= 1


def test_a_graph_that_enlarges_gives_the_size_that_came(tmp_path: Path) -> None:
    nodes = [helper.make_node("Resize", ["image", "", "scales"], ["out"], mode="nearest")]
    file = saved(
        tmp_path / "double.onnx",
        nodes,
        {"image": ANY},
        (1, 3, "twice the height", "twice the width"),
        {"scales": np.array((1, 1, 2, 2), np.float32)},
    )
    pixels = picture(50, 70)
    drawn = restorer(file).restore(pixels, None)
    assert np.abs(drawn.astype(int) - pixels).max() <= 1


def test_masks_are_where_they_are_needed_only(tmp_path: Path) -> None:
    pixels = picture(64, 64)
    network = restorer(greying(tmp_path / "grey.onnx", 64, 64))
    with pytest.raises(JobError, match="mask"):
        network.restore(pixels, None)
    assert np.array_equal(network.restore(pixels, np.zeros((64, 64), np.uint8)), pixels)
    drawn = restorer(scaling(tmp_path / "half.onnx", ANY)).restore(pixels, masked(64, 64))
    assert np.abs(drawn.astype(float) - pixels / 2).max() <= 1


def test_what_is_no_restorer_is_told_at_loading(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="1 x 5 x 8 x 8"):
        restorer(scaling(tmp_path / "channels.onnx", (1, 5, 8, 8)))
    with pytest.raises(CheckpointError, match="as floats"):
        restorer(
            saved(
                tmp_path / "integers.onnx",
                [helper.make_node("Identity", ["image"], ["out"])],
                {"image": ANY},
                ANY,
                kind=TensorProto.INT64,
            )
        )
    with pytest.raises(CheckpointError, match="no picture"):
        restorer(
            saved(
                tmp_path / "mean.onnx",
                [helper.make_node("ReduceMean", ["image"], ["out"], axes=[1], keepdims=1)],
                {"image": ANY},
                (1, 1, "height", "width"),
            )
        )
    (tmp_path / "text.onnx").write_text("no graph")
    with pytest.raises(CheckpointError, match="no ONNX file"):
        restorer(tmp_path / "text.onnx")


@pytest.mark.parametrize("name", ["", "/nowhere/a.onnx", "owner/name"])
def test_a_name_of_nothing_says_what_names_there_are(name: str) -> None:
    with pytest.raises(CheckpointError, match="owner/name/path/to/file"):
        restorer(name)


def test_without_a_network_the_hub_gives_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="the model hub did not give it"):
        restorer("nobody/nothing/model.onnx")


def test_a_picture_that_is_not_finite_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFinite):
        restorer(scaling(tmp_path / "nan.onnx", ANY, factor=float("nan"))).restore(picture(64, 64), None)
