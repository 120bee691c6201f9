"""What Flux1 reads a prompt with: CLIP for the gist, T5 for the words, Redux for pictures used like a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from deployments.engine.backend import JobError

MAX_TEXT = 512
"""T5 tokens; shorter prompts are padded, and the padding is attended, so all prompts of a model are equally long."""
MAX_GIST = 77
"""CLIP tokens."""


class Prompts:
    def __init__(self, pipeline: Any, redux: Any | None, dtype: torch.dtype, device: torch.device) -> None:
        """`pipeline` has two tokenizers and text encoders, `redux` is a `FluxPriorReduxPipeline`; both on `device`."""
        self._pipeline = pipeline
        self._redux = redux
        self._dtype = dtype
        self._device = device

    def texts(self, prompts: Sequence[str]) -> list[tuple[Tensor, Tensor]]:
        """Per prompt, tokens (1, L, D) and gist (1, P), all prompts in one pass. Longer prompts are cut off."""
        words = self._ids(self._pipeline.tokenizer_2, prompts, MAX_TEXT)
        gists = self._ids(self._pipeline.tokenizer, prompts, MAX_GIST)
        tokens = self._pipeline.text_encoder_2(words, output_hidden_states=False)[0].to(self._dtype)
        pooled = self._pipeline.text_encoder(gists, output_hidden_states=False).pooler_output.to(self._dtype)
        return list(zip(tokens.split(1), pooled.split(1), strict=True))

    def picture(self, picture: Image.Image) -> Tensor:
        """Tokens (1, M, D) that say what the picture shows, to follow a prompt's. JobError where there is no Redux."""
        if self._redux is None:
            raise JobError("this model takes no image prompt")
        seen = self._redux.encode_image(picture, self._device, 1)
        return self._redux.image_embedder(seen).image_embeds.to(self._dtype)

    def _ids(self, tokenizer: Any, prompts: Sequence[str], length: int) -> Tensor:
        """Token ids (B, L), L being `length` or less."""
        # Published tokenizers know texts of that length or longer ones (or name no limit: 1e30); a small checkpoint
        # says in its tokenizer that it was made for shorter ones.
        length = min(length, int(tokenizer.model_max_length))
        inputs = tokenizer(list(prompts), padding="max_length", max_length=length, truncation=True, return_tensors="pt")
        return inputs.input_ids.to(self._device)
