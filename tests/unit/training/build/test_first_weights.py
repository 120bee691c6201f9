from __future__ import annotations

import torch

from training.build.checkpoints import component, configuration
from training.build.first_weights import numbers


def test_upper_text_layers_pass_the_first_ones_result_on() -> None:
    model = component("flux2klein", "text_encoder").eval()
    with torch.inference_mode():
        states = model(torch.tensor([[1, 300, 2]]), output_hidden_states=True).hidden_states
    assert states is not None
    assert len(states) == configuration("flux2klein", "text_encoder")["num_hidden_layers"] + 1
    assert not torch.equal(states[0], states[9])
    assert torch.equal(states[9], states[18])


def test_numbers_that_are_close_begin_close() -> None:
    known = numbers()
    table = component("flux3", "text_encoder").get_input_embeddings().get_parameter("weight")
    at = {number: table[known[number]] for number in (300, 310, 900)}
    assert (at[300] - at[310]).norm() < (at[300] - at[900]).norm()
