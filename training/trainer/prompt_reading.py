"""What T5 should make out in a prompt before any picture asks for it.

The transformer gives texts no positions, so T5 alone can tell which words belong together. From pictures it learns that
too late and too faintly: after thousands of steps, two things still swapped their colours. Asked for it, it knows after
a thousand, which are minutes. The questions are of no use afterwards, and in no checkpoint.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.lessons.prompts import BACKGROUND, GONE, THING, Asked, ask
from training.trainer.course import Course, Plan
from training.trainer.reading import misread

_BATCH: Final = 64
_EMPTY: Final = 0.2
"""How much it counts that there is nothing in a place."""
_WIDTH, _HEADS = 128, 4


class Questions(nn.Module):
    """One layer of attention, so that an answer must be in one word's place, whole."""

    def __init__(self, width: int) -> None:
        """Of a text's tokens."""
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.questions = nn.Parameter(torch.randn(1, GONE + 2, _WIDTH))
        self.attention = nn.MultiheadAttention(_WIDTH, _HEADS, kdim=width, vdim=width, batch_first=True)
        self.thing = nn.Linear(_WIDTH, sum(THING))
        self.background = nn.Linear(_WIDTH, sum(BACKGROUND))

    def loss(self, tokens: Tensor, asked: Asked) -> Tensor:
        """Of `tokens` (B, L, width). The last question is about the background."""
        text = self.norm(tokens)
        found = F.gelu(self.attention(self.questions.expand(len(text), -1, -1), text, text, need_weights=False)[0])
        things = self.thing(found[:, :-1]).split(THING, dim=2)
        background = self.background(found[:, -1]).split(BACKGROUND, dim=1)
        return misread(things, asked.things, _EMPTY) + misread(background, asked.background)


class PromptReading:
    """A T5 encoder and questions to it, as a learner."""

    def __init__(self, encoder: Any, tokenizer: Any) -> None:
        self._encoder, self._tokenizer, self._questions = encoder, tokenizer, Questions(encoder.config.d_model)

    def networks(self) -> dict[str, nn.Module]:
        return {"encoder": self._encoder, "questions": self._questions}

    def loss(self, batch: Asked) -> Tensor:
        tokens = self._tokenizer(list(batch.prompts), padding="longest", truncation=True, return_tensors="pt")
        return self._questions.loss(self._encoder(tokens["input_ids"])[0], batch)


def prompt_course(encoder: Any, tokenizer: Any, steps: int, seed: int = 0) -> Course[Asked]:
    learner = PromptReading(encoder, tokenizer)
    return Course(learner, lambda random, done: ask(_BATCH, random), Plan(steps, batches=1, seed=seed))
