"""Texts for less time than generating takes for them: without idle layers, and mostly without padding."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor, nn

FULLY_PADDED: Final = 0.3
_MULTIPLE: Final = 8


def padded(longest: int, most: int, learning: bool) -> int:
    """How many tokens the texts of a batch get, of which the longest has `longest`.

    Generating pads to `most`, and padding is attended. In short texts the same is learnt in far less time, so only some
    batches are padded so far while learning.
    """
    if not learning or torch.rand(()).item() < FULLY_PADDED:
        return most
    return min(most, math.ceil(longest / _MULTIPLE) * _MULTIPLE)


class OneLayer:
    """Runs a Qwen decoder of which only the first layer does anything, as if it had no others.

    Its weights are the decoder's own, so what they learn is in the whole model.
    """

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self._layers: nn.ModuleList = decoder.layers
        self._stream: Tensor = torch.empty(0)
        self._layers[0].register_forward_hook(self._keep)

    def __call__(self, tokens: Tensor, mask: Tensor, padding_position: int | None = None) -> tuple[Tensor, Tensor]:
        """Token ids and mask (B, L) to the stream after the first layer, and its normed end: (B, L, width) each."""
        device = self._layers[0].get_parameter("mlp.down_proj.weight").device
        tokens, mask = tokens.to(device), mask.to(device)
        positions = None
        if padding_position is not None:
            positions = torch.arange(tokens.shape[1], device=device).expand_as(tokens)
            positions = positions.masked_fill(mask == 0, padding_position)
        whole, self._decoder.layers = self._decoder.layers, self._layers[:1]
        try:
            last = self._decoder(
                input_ids=tokens, attention_mask=mask, position_ids=positions, use_cache=False
            ).last_hidden_state
        finally:
            self._decoder.layers = whole
            # Kept, it would be copied with the layer, which tensors with a history can't be.
            stream, self._stream = self._stream, torch.empty(0)
        return stream, last

    def _keep(self, layer: nn.Module, inputs: Any, output: Any) -> None:
        self._stream = output[0] if isinstance(output, tuple) else output
