"""What the Qwen text encoders of the bundled checkpoints have in common.

They are as deep as the pipelines want them, but only the first layer does anything: the others pass the stream on, as
their output projections are zero. So the states a pipeline stacks are the word and its context, which is what small
models learn fastest from.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from deployments.bundled.words import VOCABULARY

TEXT_WIDTH = 64

_EMBEDDING_GAIN = 25.0
"""The default scale of 0.02 drowns a word in the residual stream."""


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
