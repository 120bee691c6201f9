from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.autoencoders.autoencoder_kl_flux2 import AutoencoderKLFlux2
from support.bundle import copied

from training.build.bundle import BUNDLE
from training.build.checkpoints import AUTOENCODERS
from training.evaluation.decoder import Quality, quality
from training.lessons.decoder import practice
from training.trainer.course import Plan
from training.trainer.decoder import DecoderCourse, DecoderLearner, write_weights

CLASSES: dict[str, Any] = {"AutoencoderKL": AutoencoderKL, "AutoencoderKLFlux2": AutoencoderKLFlux2}
FOLDERS = [BUNDLE / "autoencoders" / name for name in AUTOENCODERS]
MEASURED = 35.3
"""On 8 scenes of seed 3, in decibels."""


def shipped(folder: Path) -> Any:
    return CLASSES[json.loads((folder / "config.json").read_text())["_class_name"]].from_pretrained(folder)


def course(steps: int) -> tuple[DecoderLearner, DecoderCourse]:
    torch.manual_seed(0)
    learner = DecoderLearner()
    return learner, DecoderCourse(learner, Plan(steps))


@pytest.fixture(scope="module")
def measured() -> Quality:
    return quality(shipped(FOLDERS[0]).decoder, 8, seed=3)


def test_the_shipped_decoder_is_as_good_as_it_was(measured: Quality) -> None:
    assert measured.psnr >= MEASURED - 1


def test_its_pictures_have_no_rims(measured: Quality) -> None:
    assert measured.rim >= measured.middle - 2


def test_its_edges_are_sharp(measured: Quality) -> None:
    assert measured.edge < measured.true_edge + 0.4


def test_both_autoencoders_have_it() -> None:
    first, second = (shipped(folder).decoder.state_dict() for folder in FOLDERS)
    assert first.keys() == second.keys()
    assert all(torch.equal(second[name], value) for name, value in first.items())


def test_every_autoencoder_is_small_and_can_be_read() -> None:
    for folder in FOLDERS:
        assert sum(file.stat().st_size for file in folder.iterdir()) < 3.5 * 2**20
        assert all(file.stat().st_mode & 0o777 == 0o644 for file in folder.iterdir())


def test_a_resumed_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    learner, whole = course(steps=3)
    losses = list(whole.run())
    _, interrupted = course(steps=3)
    next(interrupted.run())
    state = tmp_path / "state.pt"
    torch.save(interrupted.state(), state)
    again, resumed = course(steps=3)
    torch.rand(5)
    resumed.resume(torch.load(state, weights_only=False))
    assert list(resumed.run()) == losses[1:]
    for name, weight in again.averaged.state_dict().items():
        assert torch.equal(weight, learner.averaged.state_dict()[name]), name


def test_what_is_kept_is_an_average_of_what_is_learnt() -> None:
    learner, one = course(steps=1)
    begun = {name: weight.clone() for name, weight in learner.averaged.state_dict().items()}
    list(one.run())
    learnt = learner.decoder.state_dict()
    moved = {name: (learnt[name] - weight).norm() for name, weight in begun.items()}
    assert any(distance > 0 for distance in moved.values())
    for name, weight in learner.averaged.state_dict().items():
        assert torch.allclose(weight, torch.lerp(begun[name], learnt[name], 0.01), atol=1e-7)


def test_weights_are_written_into_autoencoders_of_both_kinds(tmp_path: Path) -> None:
    copied("flux", tmp_path)
    learner, _ = course(steps=1)
    write_weights(learner.decoder, tmp_path)
    for name in AUTOENCODERS:
        folder = tmp_path / "autoencoders" / name
        written = shipped(folder).decoder.state_dict()
        assert all(torch.equal(written[name], value) for name, value in learner.decoder.state_dict().items())
        assert sorted(file.name for file in folder.iterdir()) == ["config.json", "diffusion_pytorch_model.safetensors"]


def test_practice_is_pictures_of_about_the_same_cost() -> None:
    random = Random(4)
    for _ in range(12):
        seen, pictures = practice(random)
        assert 3 * 64 * 64 <= pictures[:, 0].numel() <= 5 * 64 * 64
        assert pictures.shape[1] == 3
        assert -1 <= pictures.min() <= pictures.max() <= 1
        assert seen.shape == (len(pictures), 12, pictures.shape[2] // 8, pictures.shape[3] // 8)
