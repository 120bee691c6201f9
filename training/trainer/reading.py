"""What a student should make out on its way: which token shows what, where it is, and what a prompt says.

Edits need things in references to be told apart by their shapes before anything can be done to them; clips must know
where the canvas ends and when they begin. The error of what is drawn says that too late and too faintly. So small heads
read from the stream between the transformer's blocks, and what they get wrong is part of the loss. They are of no use
afterwards, and in no checkpoint.

Flux1's transformer gives texts no positions, so T5 alone can tell which words belong together. After thousands of steps
with pictures, two things still swapped their colours. Asked for it, T5 knows after a thousand, which are minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.lessons import batches, clips, prompts
from training.lessons.batches import UNKNOWN
from training.lessons.clips import ClipBatch
from training.lessons.prompts import Asked
from training.trainer.course import Course, Plan

_READ_AFTER: Final = (1, 2)
"""Of the blocks, from 0: early enough for the others to do something with it."""
_EMPTY: Final = 0.2
"""How much a token or a place without a thing counts."""
_AXES: Final = 3
_PICTURES, _TOLD, _PLACED = 0.03, 0.1, 0.3
"""Shares in the loss, in which what is drawn must matter most."""
_PROMPTS: Final = 64
"""In a batch."""
_WIDTH, _HEADS = 128, 4


class Reading(nn.Module):
    """Heads on the stream between blocks, of which each gives so many numbers per kind of answer."""

    def __init__(self, blocks: Any, width: int, answers: Sequence[int]) -> None:
        super().__init__()
        self._answers = tuple(answers)
        self._streams: dict[nn.Module, Any] = {}
        self._heads = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, sum(answers))) for _ in _READ_AFTER
        )
        for index in _READ_AFTER:
            blocks[index].register_forward_hook(lambda block, inputs, output: self._streams.update({block: output}))

    def _read(self, which: int, tokens: slice) -> Iterator[Sequence[Tensor]]:
        """The answers of each head, (B, N, numbers) each, after the transformer ran; `which` of a block's outputs."""
        streams, self._streams = self._streams, {}
        for head, output in zip(self._heads, streams.values(), strict=True):
            stream = output[which] if isinstance(output, tuple) else output
            yield head(stream[:, tokens].float()).split(self._answers, dim=2)


class PictureReading(Reading):
    """Of the stream of joint blocks, which ends with the picture's and the references' tokens."""

    def __init__(self, transformer: Any) -> None:
        super().__init__(transformer.single_transformer_blocks, transformer.inner_dim, batches.CLASSES)

    def loss(self, labels: Tensor) -> Tensor:
        """Of `labels` (4, B, T): the picture's tokens, and then the references'."""
        heads = self._read(-1, slice(-labels.shape[2], None))
        return _PICTURES * torch.stack([misread(told, labels, _EMPTY) for told in heads]).mean()


class ClipReading(Reading):
    def __init__(self, transformer: Any) -> None:
        width = transformer.config.num_attention_heads * transformer.config.attention_head_dim
        super().__init__(transformer.transformer_blocks, width, (_AXES, *clips.CLASSES))

    def loss(self, batch: ClipBatch) -> Tensor:
        """Of what is told and of where tokens are."""
        total, where = torch.zeros(()), batch.places
        labels = batch.labels.T[..., None].expand(-1, -1, len(where))
        for place, *told in self._read(0, slice(len(where))):
            total = total + _PLACED * (place - where).square().mean() + _TOLD * misread(told, labels)
        return total / len(_READ_AFTER)


class PromptReading(nn.Module):
    """Questions to a T5 encoder, as a learner: one layer of attention, so that an answer must be whole in one word."""

    def __init__(self, encoder: Any, tokenizer: Any) -> None:
        super().__init__()
        width = encoder.config.d_model
        self.encoder, self._tokenizer = encoder, tokenizer
        self.norm = nn.LayerNorm(width)
        self.questions = nn.Parameter(torch.randn(1, prompts.GONE + 2, _WIDTH))
        self.attention = nn.MultiheadAttention(_WIDTH, _HEADS, kdim=width, vdim=width, batch_first=True)
        self.thing = nn.Linear(_WIDTH, sum(prompts.THING))
        self.background = nn.Linear(_WIDTH, sum(prompts.BACKGROUND))

    def networks(self) -> dict[str, nn.Module]:
        return {"reading": self}

    def loss(self, batch: Asked) -> Tensor:
        """The last question is about the background, the others about things."""
        tokens = self._tokenizer(list(batch.prompts), padding="longest", truncation=True, return_tensors="pt")
        text = self.norm(self.encoder(tokens["input_ids"])[0])
        found = F.gelu(self.attention(self.questions.expand(len(text), -1, -1), text, text, need_weights=False)[0])
        things = self.thing(found[:, :-1]).split(prompts.THING, dim=2)
        background = self.background(found[:, -1]).split(prompts.BACKGROUND, dim=1)
        return misread(things, batch.things, _EMPTY) + misread(background, batch.background)


def prompt_course(encoder: Any, tokenizer: Any, steps: int, seed: int = 0) -> Course[Asked]:
    learner = PromptReading(encoder, tokenizer)
    return Course(learner, lambda random, done: prompts.ask(_PROMPTS, random), Plan(steps, batches=1, seed=seed))


def misread(answers: Sequence[Tensor], wanted: Tensor, empty: float = 1.0) -> Tensor:
    """The cross entropy of `answers` (B, N, classes) each, for `wanted` (kinds, B, N), summed over kinds.

    What is UNKNOWN isn't asked for, and class 0 counts `empty`.
    """
    total = torch.zeros(())
    for scores, classes in zip(answers, wanted, strict=True):
        weight = torch.where(classes == 0, empty, 1.0) * (classes != UNKNOWN)
        wrong = F.cross_entropy(scores.movedim(-1, 1), classes, reduction="none", ignore_index=UNKNOWN)
        total = total + (wrong * weight).sum() / weight.sum().clamp_min(1)
    return total
