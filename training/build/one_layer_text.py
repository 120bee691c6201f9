"""What the Qwen text encoders of the bundled checkpoints have in common.

They are as deep as the pipelines want them, but only the first layer does anything: the others pass the stream on, as
their output projections are zero. So the states a pipeline stacks are the word and its context, which is what small
models learn fastest from.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from training.build.vocabulary import numbers
from training.build.words import VOCABULARY

TEXT_WIDTH = 64

_EMBEDDING_GAIN = 25.0
"""The default scale of 0.02 drowns a word in the residual stream."""

_WAVES = 8
"""A number is told by its sine and cosine at so many wavelengths, from twice the whole range down."""


def text_config(layers: int) -> dict[str, Any]:
    """The sizes in the configuration of a text encoder of `layers` layers."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": TEXT_WIDTH,
        "intermediate_size": TEXT_WIDTH,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": TEXT_WIDTH // 2,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    }


@torch.no_grad()
def keep_first_layer(embeddings: nn.Module, layers: nn.ModuleList) -> None:
    """Makes words stand out of `embeddings`, and all but the first of the decoder `layers` pass the stream on."""
    embeddings.get_parameter("weight").mul_(_EMBEDDING_GAIN)
    for layer in layers[1:]:
        layer.get_parameter("self_attn.o_proj.weight").zero_()
        layer.get_parameter("mlp.down_proj.weight").zero_()


@torch.no_grad()
def order_numbers(embeddings: nn.Module) -> None:
    """Gives numbers that are close to each other words that are: so none has to be learnt by itself."""
    table = embeddings.get_parameter("weight")
    known = numbers()
    table[list(known.values())] = table[known[0]].clone()
    values = torch.tensor(list(known), dtype=table.dtype) / max(known)
    table[list(known.values()), : 2 * _WAVES] = _waves(values) * table.std()


def _waves(values: Tensor) -> Tensor:
    """(N,) in [0, 1] to (N, 2 x _WAVES) of variance 1."""
    angles = values[:, None] * torch.pi * 2.0 ** torch.arange(_WAVES)
    return torch.cat([angles.sin(), angles.cos()], dim=1) * 2**0.5
