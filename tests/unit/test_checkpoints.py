from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from deployments import checkpoints
from deployments.contract.job import GenerationJob
from deployments.engine.state import State
from deployments.engine.step import step
from deployments.families.base import CheckpointError, Commission, Family
from deployments.families.flux3 import Flux3


@pytest.fixture(scope="module")
def loaded() -> Family:
    return checkpoints.load("bundled/flux3", device="cpu")


@pytest.fixture
def family(loaded: Family) -> Iterator[Family]:
    yield loaded
    loaded.transformer.reset_attention_backend()


def latents(family: Family) -> torch.Tensor:
    """Of a picture after two steps."""
    job = GenerationJob("job", 1, "a red circle", 64, 64, 2, 5, "png", "results/job/1")
    [state] = family.encode([Commission(job)])
    assert isinstance(state, State)
    step(family, [state])
    step(family, [state])
    return state.x


def test_the_index_chooses_the_family(loaded: Family) -> None:
    assert isinstance(loaded, Flux3)


def test_a_folder_copied_elsewhere_loads_on_its_own(
    loaded: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "somewhere" / "else"
    shutil.copytree(checkpoints.BUNDLED / "flux3", copy)
    monkeypatch.setattr(checkpoints, "BUNDLED", tmp_path / "gone")
    monkeypatch.chdir(tmp_path)
    assert torch.equal(latents(checkpoints.load(str(copy), device="cpu")), latents(loaded))
    assert torch.equal(latents(checkpoints.load("somewhere/else", device="cpu")), latents(loaded))


def test_an_unknown_bundled_name_lists_those_there_are() -> None:
    with pytest.raises(CheckpointError, match="bundled/flux3"):
        checkpoints.load("bundled/nothing")


@pytest.mark.parametrize("name", ["no such name", "no/such/name"])
def test_a_name_that_is_neither_folder_nor_repository_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match="no folder here"):
        checkpoints.load(name)


def test_a_folder_without_an_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        checkpoints.load(str(tmp_path))


def test_a_checkpoint_of_a_foreign_family_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "OtherPipeline"}))
    with pytest.raises(CheckpointError, match="OtherPipeline"):
        checkpoints.load(str(tmp_path))


def test_a_checkpoint_with_a_missing_component_is_refused(tmp_path: Path) -> None:
    shutil.copytree(checkpoints.BUNDLED / "flux3", tmp_path / "flux3")
    shutil.rmtree(tmp_path / "flux3" / "vae")
    with pytest.raises(CheckpointError, match="vae"):
        checkpoints.load(str(tmp_path / "flux3"))


def test_unusable_attention_backends_are_logged_and_skipped(family: Family, caplog: pytest.LogCaptureFixture) -> None:
    """One that doesn't exist, one whose package is missing, one that fails only when called on this device."""
    with caplog.at_level(logging.WARNING):
        chosen = checkpoints.use_attention(family, ["imaginary", "sage", "_native_cudnn", "_native_math", "native"])
    assert chosen == "_native_math"
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple) and record.args] == [
        "imaginary",
        "sage",
        "_native_cudnn",
    ]


def test_no_usable_attention_backend_is_an_error_that_names_them(family: Family) -> None:
    before = latents(family)
    with pytest.raises(CheckpointError, match=r"imaginary.*sage"):
        checkpoints.use_attention(family, ["imaginary", "sage"])
    assert torch.equal(latents(family), before)


def test_float32_is_the_choice_without_a_gpu(loaded: Family) -> None:
    assert loaded.transformer.dtype == torch.float32


def test_bfloat16_runs_with_latents_in_full_precision(loaded: Family) -> None:
    half = checkpoints.load("bundled/flux3", device="cpu", dtype="bfloat16")
    assert half.transformer.dtype == torch.bfloat16
    x = latents(half)
    assert x.dtype == torch.float32
    assert (x - latents(loaded)).abs().max() < 0.2
