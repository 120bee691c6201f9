"""Flow matching of drawn pictures and clips, with what was found to help most on small models.

- Most of the learning happens where all is still noise, so half of all times are 1, and the others are drawn with a
  shift.
- A step is the mean of several small batches, which are of kinds and canvases of their own.
- Things weigh more than the background.
- What the model makes out on its way is learnt, too (`reading`): edits need it.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.lessons.batches import Batch
from training.lessons.clips import ClipBatch
from training.trainer.ltx2 import ClipStudent
from training.trainer.reading import ClipReading, PictureReading
from training.trainer.student import PictureStudent

PURE_NOISE: Final = 0.5
"""How many of a batch start from noise alone: what a prompt means for the layout is decided there."""
_PICTURE_SHIFT, _CLIP_SHIFT = 5.0, 3.0
"""Of the times drawn; 1 is uniform, more is nearer to the noise."""
_TONE: Final = 0.3
"""How much the tone weighs beside the frames."""


class PictureFlow:
    """A student of pictures, as a learner."""

    def __init__(self, student: PictureStudent, reading: PictureReading | None = None) -> None:
        self._student, self._reading = student, reading

    def networks(self) -> dict[str, nn.Module]:
        return self._student.networks() | ({} if self._reading is None else {"reading": self._reading})

    def loss(self, batch: Batch) -> Tensor:
        x, t, t_next, wanted = noised(batch.target)
        with fast():
            velocity = self._student.velocity(x, t, t_next, batch).float()
        loss = (batch.weight * (velocity - wanted).square()).mean()
        if self._reading is not None and batch.labels is not None:
            loss = loss + self._reading.loss(batch.labels)
        return loss


class ClipFlow:
    """A student of clips and their tones, as a learner."""

    def __init__(self, student: ClipStudent) -> None:
        self._student, self._reading = student, ClipReading(student.transformer)

    def networks(self) -> dict[str, nn.Module]:
        return self._student.networks() | {"reading": self._reading}

    def loss(self, batch: ClipBatch) -> Tensor:
        noise, hiss = torch.randn_like(batch.target), torch.randn_like(batch.tone)
        t = times(len(batch.target), _CLIP_SHIFT)
        x = torch.where(batch.given[:, None], batch.target, torch.lerp(batch.target, noise, t[:, None, None]))
        with fast():
            video, sound = self._student.velocity(x, torch.lerp(batch.tone, hiss, t[:, None, None]), t, batch)
        missed = (video.float() - (noise - batch.target)).square().mean(dim=2) * batch.weight * ~batch.given
        frames = missed.sum() / (~batch.given).sum() / len(missed)
        tone = _TONE * (sound.float() - (hiss - batch.tone)).square().mean()
        return frames + tone + self._reading.loss(batch)


def noised(target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pictures on their way: `x` as `target`, its time (B,), the next time (B,), and the velocity that leads on."""
    noise = torch.randn_like(target)
    t = times(len(target), _PICTURE_SHIFT)
    return torch.lerp(target, noise, t[:, None, None]), t, t * torch.rand(len(t)), noise - target


def times(count: int, shift: float) -> Tensor:
    """(count,) in (0, 1]."""
    uniform = torch.rand(count)
    shifted = shift * uniform / (1 + (shift - 1) * uniform)
    return torch.where(torch.rand(count) < PURE_NOISE, 1.0, shifted)


@contextlib.contextmanager
def fast() -> Iterator[None]:
    """What a network is run in.

    bfloat16 halves a step on CPUs that have it, and makes it four times as long on others. There, attention over so few
    tokens takes a half to a quarter of the time in single precision.
    """
    stock = F.scaled_dot_product_attention

    def attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
        mask = attn_mask if attn_mask is None or attn_mask.dtype == torch.bool else attn_mask.float()
        with torch.autocast("cpu", enabled=False):
            return stock(query.float(), key.float(), value.float(), mask, **options).to(value.dtype)

    F.scaled_dot_product_attention = attention
    try:
        with warnings.catch_warnings():
            # Norms with weights of full precision take the longer way, which is what is wanted.
            warnings.filterwarnings("ignore", "Mismatch dtype between input and weight")
            with torch.autocast("cpu", torch.bfloat16, enabled=bool(torch.cpu.get_capabilities().get("avx512_bf16"))):
                yield
    finally:
        F.scaled_dot_product_attention = stock
