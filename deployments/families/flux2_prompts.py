"""What Flux2 reads a prompt with: a language model, whose hidden states the pipelines stack."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor

from deployments.families.kept import apart
from deployments.families.pipeline import prompt_length
from deployments.families.prompts import trim_language_model

MAX_TEXT = 512
"""Text tokens, as the pipelines pad it."""
TEXT_PARTS = ("text_encoder", "tokenizer")
"""Components of a checkpoint."""


class EncodedPrompt(NamedTuple):
    text: Tensor
    """(1, L, D)."""
    ids: Tensor
    """Positions, (L, 4)."""


class Flux2PromptEncoder:
    def __init__(self, pipeline: Any, dtype: torch.dtype, device: torch.device) -> None:
        """`pipeline` is a `Flux2KleinPipeline` or `Flux2Pipeline` with its text components, on `device`."""
        self._pipeline = pipeline
        self._dtype = dtype
        self._device = device
        [*_, last] = signature(pipeline.encode_prompt).parameters["text_encoder_out_layers"].default
        trim_language_model(pipeline.text_encoder, last)
        self._length = prompt_length(getattr(pipeline.tokenizer, "tokenizer", pipeline.tokenizer), MAX_TEXT)

    def encode(self, prompts: Sequence[str]) -> list[EncodedPrompt]:
        texts, ids = self._pipeline.encode_prompt(list(prompts), device=self._device, max_sequence_length=self._length)
        return [EncodedPrompt(text, ids[0]) for text in apart(texts.to(self._dtype))]
