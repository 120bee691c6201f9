from __future__ import annotations

import torch

from training.build.checkpoints import component
from training.trainer.prompt_reading import prompt_course


def test_an_encoder_learns_from_questions() -> None:
    torch.manual_seed(0)
    encoder = component("flux", "text_encoder_2")
    before = {name: weight.detach().clone() for name, weight in encoder.named_parameters()}
    losses = list(prompt_course(encoder, component("flux", "tokenizer_2"), steps=15, seed=1).run())
    assert losses[-1] < losses[0]
    moved = [name for name, weight in encoder.named_parameters() if not torch.equal(weight, before[name])]
    assert len(moved) == len(before), "every part of it takes part"
