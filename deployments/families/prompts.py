"""What reads prompts: a checkpoint's own text encoders, or those of another process that several models share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import safetensors.torch
import torch
from torch import Tensor, nn

Encoded = TypeVar("Encoded", bound=tuple[Tensor, ...])
Encoded_co = TypeVar("Encoded_co", bound=tuple[Tensor, ...], covariant=True)


class PromptEncoder(Protocol[Encoded_co]):
    def encode(self, prompts: Sequence[str]) -> Sequence[Encoded_co]:
        """One per prompt, in order, at least one; none of them keeps another one in memory."""
        ...


SharedEncoder: TypeAlias = Callable[[str], bytes]
"""From a prompt to what `as_bytes` made of it elsewhere. Waits; from any thread. Raises TextEncoderUnavailable."""


def as_bytes(encoded: tuple[Tensor, ...]) -> bytes:
    """In the format of safetensors, each tensor by its place."""
    return safetensors.torch.save({str(place): tensor.cpu().contiguous() for place, tensor in enumerate(encoded)})


def from_bytes(data: bytes, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """In their order, on `device`; what is no integer in `dtype`."""
    tensors = safetensors.torch.load(data)
    ordered = [tensors[str(place)] for place in range(len(tensors))]
    return [tensor.to(device, dtype if tensor.is_floating_point() else None) for tensor in ordered]


def trim_language_model(model: Any, last_state: int) -> None:
    """Drops from `model` what comes after hidden state `last_state`: later layers and the head, which gives a logit for
    every word of its vocabulary and token of the prompt. The first later layer stays: the last state has a norm of its
    own."""
    decoder = model.get_decoder()
    decoder.layers = decoder.layers[: last_state + 1]
    model.lm_head = nn.Identity()
