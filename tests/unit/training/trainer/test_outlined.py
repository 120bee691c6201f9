from __future__ import annotations

from pathlib import Path
from random import Random

import torch

from deployments.adapters.store import read
from training.build import build_flux3
from training.lessons.batches import batch_of
from training.lessons.pictures import tell
from training.trainer.flux3 import Flux3Student
from training.trainer.outlined import RANK, Outlined, practice, train


def test_training_gives_a_tuned_model_that_the_service_takes(tmp_path: Path) -> None:
    file = tmp_path / "adapters" / "outlined.safetensors"
    base = Flux3Student()
    before = [parameter.clone() for parameter in base.transformer.parameters()]
    train(base, steps=1, file=file)
    tuned = read(file.read_bytes(), build_flux3.transformer())
    assert tuned.rank == RANK
    assert any(layer.up.abs().max() > 0 for layer in tuned.layers.values())
    assert all(torch.equal(a, b) for a, b in zip(before, base.transformer.parameters(), strict=True))


def test_it_begins_as_the_base() -> None:
    torch.manual_seed(0)
    base = Flux3Student()
    base.transformer.eval()  # else texts are padded at random
    batch = batch_of([tell(Random(0), (8, 8))], (8, 8), Random(0))
    x, t = torch.randn_like(batch.target), torch.tensor([0.5])
    with torch.inference_mode():
        plain = base.velocity(x, t, t, batch)
        assert torch.equal(Outlined(base).velocity(x, t, t, batch), plain)


def test_prompts_are_the_usual_ones_and_pictures_are_outlined() -> None:
    batch = practice(4, Random(0))
    assert not any("outline" in prompt for prompt in batch.prompts)
    assert batch.target.shape[0] == 4
