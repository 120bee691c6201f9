from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.autoencoders.autoencoder_kl_flux2 import AutoencoderKLFlux2
from torch import Tensor

from training.build.analytic_vae import analytic_vae
from training.build.folders import CHECKPOINTS
from training.trainer.course import write_state
from training.trainer.decoder import Course, picture_autoencoders, write_weights
from training.trainer.decoder_pictures import practice
from training.trainer.decoder_quality import Quality, edge_width, held_out, quality

CLASSES: dict[str, Any] = {"AutoencoderKL": AutoencoderKL, "AutoencoderKLFlux2": AutoencoderKLFlux2}
FOLDERS = picture_autoencoders()
MEASURED = 35.3
"""Of `held_out(8, seed=3)`, in decibels."""


def shipped(folder: Path) -> Any:
    return CLASSES[json.loads((folder / "config.json").read_text())["_class_name"]].from_pretrained(folder)


@pytest.fixture(scope="module")
def measured() -> Quality:
    return quality(shipped(FOLDERS[0]).decoder, held_out(8, seed=3))


def test_the_shipped_decoder_is_as_good_as_it_was(measured: Quality) -> None:
    assert measured.psnr >= MEASURED - 1


def test_its_pictures_have_no_rims(measured: Quality) -> None:
    assert measured.rim >= measured.middle - 2


def test_its_edges_are_sharp(measured: Quality) -> None:
    assert measured.edge < measured.true_edge + 0.4


def test_every_checkpoint_has_it() -> None:
    first, *others = (shipped(folder).decoder.state_dict() for folder in FOLDERS)
    assert others
    for other in others:
        assert all(torch.equal(first[name], value) for name, value in other.items())


def test_every_autoencoder_is_small_and_can_be_read() -> None:
    for folder in FOLDERS:
        assert sum(file.stat().st_size for file in folder.iterdir()) < 3.5 * 2**20
        assert all(file.stat().st_mode & 0o777 == 0o644 for file in folder.iterdir())


def test_a_resumed_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole = Course(steps=3)
    losses = list(whole.run(lambda course: None))
    interrupted = Course(steps=3)
    next(interrupted.run(lambda course: None))
    write_state(interrupted.state(), tmp_path / "state.pt")
    torch.rand(5)
    resumed = Course(steps=3, seed=9)
    resumed.resume(torch.load(tmp_path / "state.pt", weights_only=False))
    assert list(resumed.run(lambda course: None)) == losses[1:]
    for name, weight in resumed.averaged.state_dict().items():
        assert torch.equal(weight, whole.averaged.state_dict()[name]), name


def test_it_saves_at_the_end_and_every_now_and_then() -> None:
    saved: list[int] = []
    list(Course(steps=2).run(lambda course: saved.append(course.step), save_every_s=0))
    assert saved == [1, 2, 2]


def test_weights_are_written_into_checkpoints_of_both_kinds(tmp_path: Path) -> None:
    for name in ("flux", "flux3"):
        shutil.copytree(CHECKPOINTS / name / "vae", tmp_path / name / "vae")
    decoder = analytic_vae().get_submodule("decoder")
    assert write_weights(decoder, tmp_path) == [tmp_path / "flux" / "vae", tmp_path / "flux3" / "vae"]
    for folder in (tmp_path / "flux" / "vae", tmp_path / "flux3" / "vae"):
        written = shipped(folder).decoder.state_dict()
        assert all(torch.equal(written[name], value) for name, value in decoder.state_dict().items())
        assert sorted(file.name for file in folder.iterdir()) == ["config.json", "diffusion_pytorch_model.safetensors"]


def test_practice_is_pictures_of_about_the_same_cost() -> None:
    random = Random(4)
    for _ in range(12):
        pictures = practice(random)
        assert 3 * 64 * 64 <= pictures[:, 0].numel() <= 5 * 64 * 64
        assert pictures.shape[1] == 3
        assert -1 <= pictures.min() <= pictures.max() <= 1


def ramp(width: int) -> Tensor:
    """Black, then white, with an edge of that many pixels between."""
    row = ((torch.arange(32) - 15.5) / width).clamp(-0.5, 0.5) * 2
    return row.expand(1, 3, 8, 32)


@pytest.mark.parametrize(("width", "measured"), [(1, 0.8), (2, 2.2), (4, 3.4)])
def test_edge_width_is_from_10_to_90_percent(width: int, measured: float) -> None:
    assert edge_width(ramp(width), ramp(1)) == pytest.approx(measured, abs=0.01)
