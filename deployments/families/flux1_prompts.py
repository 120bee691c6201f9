"""What Flux1 reads a prompt with: CLIP as a whole, T5 word by word, Redux for pictures used like a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from deployments.engine.backend import JobError
from deployments.families.kept import apart
from deployments.families.pipeline import prompt_length

MAX_TEXT = 512
"""T5 tokens; shorter prompts are padded, and the padding is attended, so all prompts of a model are equally long."""
MAX_POOLED = 77
"""CLIP tokens."""


class EncodedPrompt(NamedTuple):
    text: Tensor
    """T5's tokens, (1, L, D)."""
    pooled: Tensor
    """CLIP's pooled embedding, (1, P)."""


TEXT_PARTS = ("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")
"""Components of a checkpoint."""


class Flux1PromptEncoder:
    def __init__(self, pipeline: Any, dtype: torch.dtype, device: torch.device) -> None:
        """`pipeline` has two tokenizers and text encoders, on `device`."""
        self._pipeline = pipeline
        self._dtype = dtype
        self._device = device

    def encode(self, prompts: Sequence[str]) -> list[EncodedPrompt]:
        """All prompts in one pass. Longer ones than the tokenizers know are cut off."""
        t5_ids = self._ids(self._pipeline.tokenizer_2, prompts, MAX_TEXT)
        clip_ids = self._ids(self._pipeline.tokenizer, prompts, MAX_POOLED)
        texts = self._pipeline.text_encoder_2(t5_ids, output_hidden_states=False)[0].to(self._dtype)
        pooled = self._pipeline.text_encoder(clip_ids, output_hidden_states=False).pooler_output.to(self._dtype)
        return [EncodedPrompt(*pair) for pair in zip(apart(texts), apart(pooled), strict=True)]

    def _ids(self, tokenizer: Any, prompts: Sequence[str], most: int) -> Tensor:
        """Token ids (B, L), L being `most` or less."""
        length = prompt_length(tokenizer, most)
        inputs = tokenizer(list(prompts), padding="max_length", max_length=length, truncation=True, return_tensors="pt")
        return inputs.input_ids.to(self._device)


class ImagePromptEncoder:
    def __init__(self, redux: Any | None, dtype: torch.dtype, device: torch.device) -> None:
        """`redux` is a `FluxPriorReduxPipeline` on `device`."""
        self._redux = redux
        self._dtype = dtype
        self._device = device

    def encode(self, picture: Image.Image) -> Tensor:
        """Tokens (1, M, D) that say what the picture shows, to follow a prompt's. JobError where there is no Redux."""
        if self._redux is None:
            raise JobError("this model takes no image prompt")
        seen = self._redux.encode_image(picture, self._device, 1)
        return self._redux.image_embedder(seen).image_embeds.to(self._dtype)
