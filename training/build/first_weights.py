"""What networks begin with where random numbers are not enough, in place, by their class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from diffusers.models.transformers.transformer_ltx2 import LTX2VideoTransformer3DModel
from torch import Tensor, nn
from transformers import (
    Gemma3ForConditionalGeneration,
    Qwen2Tokenizer,
    Qwen3ForCausalLM,
    Qwen3VLForConditionalGeneration,
    T5EncoderModel,
)

from training.build import picture_autoencoder, sound, video_autoencoder
from training.build.bundle import CHECKPOINTS

MAX_COORDINATE = 1000
"""Of boxes."""

_QWEN_GAIN = 25.0
"""Of embeddings: their default scale of 0.02 drowns a word in the residual stream."""
_WAVES = 8
"""A number is told by its sine and cosine at so many wavelengths, from twice the whole range down."""

_EXACT = 8
"""Distances in words that T5 tells from each other; beyond, more and more share a row of its table."""
_ATTENTIVE = 5.0
"""Added to one score of some fifty, it gets most of the attention."""
_FADING = 0.5
"""Taken from a score per word of distance, so that of equal words the nearest gets most of it."""
_UNSEEN = -10.0


def numbers() -> dict[int, int]:
    """Qwen's token ids of the whole numbers that boxes are made of."""
    words = Qwen2Tokenizer.from_pretrained(CHECKPOINTS / "flux3" / "tokenizer")
    return dict(enumerate(words.convert_tokens_to_ids([str(number) for number in range(MAX_COORDINATE + 1)])))


def _flux2_text(model: Qwen3ForCausalLM) -> None:
    _keep_first_layer(model.model.embed_tokens, model.model.layers)


def _flux3_text(model: Qwen3VLForConditionalGeneration) -> None:
    _keep_first_layer(model.get_input_embeddings(), model.model.language_model.layers)


def _keep_first_layer(embeddings: nn.Module, layers: nn.ModuleList) -> None:
    """Makes words stand out of `embeddings`, and all `layers` but the first pass the stream on.

    Encoders are as deep as the pipelines want them. So the states that a pipeline stacks are the word and its context,
    which is what small models learn fastest from.
    """
    table = embeddings.get_parameter("weight")
    table.mul_(_QWEN_GAIN)
    for layer in layers[1:]:
        layer.get_parameter("self_attn.o_proj.weight").zero_()
        layer.get_parameter("mlp.down_proj.weight").zero_()
    _order_numbers(table)


def _order_numbers(table: Tensor) -> None:
    """Gives numbers that are close to each other words that are: so none has to be learnt by itself."""
    known = numbers()
    table[list(known.values())] = table[known[0]].clone()
    values = torch.tensor(list(known), dtype=table.dtype) / max(known)
    angles = values[:, None] * torch.pi * 2.0 ** torch.arange(_WAVES)
    waves = torch.cat([angles.sin(), angles.cos()], dim=1) * 2**0.5  # of variance 1
    table[list(known.values()), : 2 * _WAVES] = waves * table.std()


def _flux1_text(model: T5EncoderModel) -> None:
    """Begins by adding to every word the one before it and the one after it; what else its layers add is learnt.

    Nothing after it knows the order of words: the transformer gives texts no positions. So what belongs together in a
    sentence must be told here, for which two more heads look at words nearby, one to each side.
    """
    bias = model.get_parameter("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight").zero_()
    half = len(bias) // 2  # rows for a word itself and what goes before it; the others for what follows
    bias[1, 0] = bias[half + 1, 1] = _ATTENTIVE
    near = -_FADING * _distances(half, model.config.relative_attention_max_distance)
    bias[:half, 2], bias[half:, 2] = near, _UNSEEN
    bias[:half, 3], bias[half:, 3] = _UNSEEN, near
    for name, weight in model.named_parameters():
        if name.endswith("DenseReluDense.wo.weight"):
            weight.zero_()


def _distances(count: int, farthest: int) -> Tensor:
    """Of the rows of one half of T5's table, in words; of rows that several distances share, the least."""
    rows = torch.arange(count).float()
    return torch.where(rows < _EXACT, rows, _EXACT * (farthest / _EXACT) ** ((rows - _EXACT) / (count - _EXACT)))


def _ltx2_text(model: Gemma3ForConditionalGeneration) -> None:
    words = model.get_input_embeddings().get_parameter("weight")
    words.normal_(std=words.shape[1] ** -0.5)  # Gemma multiplies words with the root of the width


def _ltx2_transformer(model: LTX2VideoTransformer3DModel) -> None:
    """Begins by passing on what it gets, which at first is noise: most of the velocity that is asked for."""
    for name, parameter in model.named_parameters():
        if name.startswith("transformer_blocks.") and (".to_out." in name or ".net.2." in name):
            parameter.zero_()
    _pass_on(model.proj_in, model.proj_out)
    _pass_on(model.audio_proj_in, model.audio_proj_out)


def _pass_on(enter: nn.Linear, leave: nn.Linear) -> None:
    """Latents go through a stream that is wider, and normed at its end, as they are."""
    basis = nn.init.orthogonal_(torch.empty_like(enter.weight))
    enter.weight.copy_(basis)
    leave.weight.copy_(basis.T * (basis.shape[1] / basis.shape[0]) ** 0.5)
    nn.init.zeros_(enter.bias)
    nn.init.zeros_(leave.bias)


FIRST_WEIGHTS: Final[Mapping[str, Callable[[Any], None]]] = MappingProxyType(
    {
        "AutoencoderKL": picture_autoencoder.write,
        "AutoencoderKLFlux2": picture_autoencoder.write,
        "AutoencoderKLLTX2Video": video_autoencoder.write,
        "AutoencoderKLLTX2Audio": sound.write_autoencoder,
        "LTX2Vocoder": sound.write_vocoder,
        "T5EncoderModel": _flux1_text,
        "Qwen3ForCausalLM": _flux2_text,
        "Qwen3VLForConditionalGeneration": _flux3_text,
        "Gemma3ForConditionalGeneration": _ltx2_text,
        "LTX2VideoTransformer3DModel": _ltx2_transformer,
    }
)
