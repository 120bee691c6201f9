"""What Flux3 reads a prompt with: a language model, of whose hidden states eight are stacked."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from deployments.families.kept import apart
from deployments.families.prompts import trim_language_model

TEXT_MULTIPLE = 80
MAX_TEXT = 8192
TEXT_STATES = (4, 8, 12, 16, 20, 24, 28, 32)
"""Hidden states of the text encoder that are stacked, as the pipeline does by default."""
TEXT_PARTS = ("text_encoder", "tokenizer")
"""Components of a checkpoint."""


class EncodedPrompt(NamedTuple):
    text: Tensor
    """(1, L, 8 x width)."""


class Flux3PromptEncoder:
    def __init__(self, pipeline: Any, dtype: torch.dtype, device: torch.device) -> None:
        """`pipeline` is a `Flux3DistilledModularPipeline` with its text components, on `device`."""
        self._text_encoder: Any = pipeline.text_encoder
        trim_language_model(self._text_encoder, TEXT_STATES[-1])
        self._processor: Any = pipeline.tokenizer
        self._dtype = dtype
        self._device = device

    def encode(self, prompts: Sequence[str]) -> list[EncodedPrompt]:
        """Prompts of equal padded length go through the encoder together."""
        tokenizer = getattr(self._processor, "tokenizer", self._processor)
        chats = [
            self._processor.apply_chat_template(
                [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
            )
            for prompt in prompts
        ]
        groups: dict[int, list[int]] = defaultdict(list)
        for index, chat in enumerate(chats):
            length = len(tokenizer(chat, truncation=True, max_length=MAX_TEXT)["input_ids"])
            groups[min(math.ceil(length / TEXT_MULTIPLE) * TEXT_MULTIPLE, MAX_TEXT)].append(index)
        texts: dict[int, Tensor] = {}
        for length, members in groups.items():
            inputs = tokenizer(
                [chats[index] for index in members],
                return_tensors="pt",
                padding="max_length",
                padding_side="right",
                truncation=True,
                max_length=length,
            ).to(self._device)
            texts.update(zip(members, self._encoded(inputs["input_ids"], inputs["attention_mask"]), strict=True))
        return [EncodedPrompt(texts[index]) for index in range(len(prompts))]

    def _encoded(self, tokens: Tensor, mask: Tensor) -> list[Tensor]:
        """Token ids and mask (B, L) to B stacks of hidden states (1, L, 8 x width), in the precision asked for."""
        # The models were trained with padding at position 1; newer text encoders would put it at 0.
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens).masked_fill(mask == 0, 1)
        states = self._text_encoder(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            output_hidden_states=True,
            use_cache=False,
        ).hidden_states
        return apart(torch.cat([states[k] for k in TEXT_STATES], dim=-1).to(self._dtype))
