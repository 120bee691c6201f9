"""The packed batch: sequence offsets, tokens, constants of all steps, and attention over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor


class PackedSequence:
    """Tokens of several images one after the other, (1, T, D): all of image 0, then all of image 1, ..."""

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        """`lengths[k]` is the number of tokens of image k; 0 is allowed."""
        self.lengths = list(lengths)
        self.offsets = [0, *accumulate(lengths)]
        """First token of each image, and the end of the last."""
        self.cu_seqlens = torch.tensor(self.offsets, dtype=torch.int32).to(device)
        """`offsets` for kernels, (B + 1,)."""
        image_of_token = torch.repeat_interleave(torch.arange(len(self.lengths)), torch.tensor(self.lengths))
        self.seq_index = image_of_token.to(device)
        """Image of each token, (T,)."""
        self.block_mask: Any = None
        """Cached mask of xformers, which every block of every step needs."""

    @property
    def total(self) -> int:
        return self.offsets[-1]

    def expand_to_tokens(self, per_image: Tensor) -> Tensor:
        """Repeats (B, D), a row per image, to (1, T, D), a row per token."""
        return per_image.index_select(0, self.seq_index)[None]

    def split(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Splits (1, T, ...) into (1, T_k, ...) per image."""
        return tokens.split(self.lengths, dim=1)


class InterleavedSequence(PackedSequence):
    """Tokens of two sequences of the same images, image by image: those of the first, then those of the second."""

    def __init__(self, first: PackedSequence, second: PackedSequence) -> None:
        device = first.seq_index.device
        super().__init__([a + b for a, b in zip(first.lengths, second.lengths, strict=True)], device)
        self._totals = [first.total, second.total]
        indexes = [
            torch.arange(offset + sequence.offsets[image], offset + sequence.offsets[image + 1])
            for image in range(len(self.lengths))
            for sequence, offset in ((first, 0), (second, first.total))
        ]
        order = torch.cat(indexes)
        self._order = order.to(device)
        self._inverse = torch.argsort(order).to(device)

    def interleave(self, first: Tensor, second: Tensor | None) -> Tensor:
        """Orders the tokens of both, (n, T_1, ...) and (n, T_2, ...), for this sequence. None stands for no tokens."""
        if second is None:
            return first
        return torch.cat([first, second], dim=1).index_select(1, self._order)

    def deinterleave(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        if not self._totals[1]:
            return tokens, tokens[:, :0]
        first, second = tokens.index_select(1, self._inverse).split(self._totals, dim=1)
        return first, second


@dataclass(frozen=True, slots=True)
class Constants:
    """Values of an image, or of all images of a sequence, that are the same in every step."""

    text: Tensor
    """Input of the first block, (1, L, D)."""
    references: Tensor | None
    """Input of the first block, (1, M, D)."""
    channels: Tensor | None
    """Channels added to every token of the image, (1, N, K)."""
    pooled: Tensor | None
    """Pooled embedding of the prompt, (B, P)."""
    text_positions: Tensor
    """Cosines and sines, (2, L, head width)."""
    image_positions: Tensor
    reference_positions: Tensor
    """Empty without references."""


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A sequence of images with the layout of its tokens."""

    text: PackedSequence
    image: PackedSequence
    references: PackedSequence
    visual: InterleavedSequence
    """Images and references."""
    joint: InterleavedSequence
    """Text, images and references."""
    constants: Constants
    joint_positions: Tensor

    @classmethod
    def from_constants(cls, images: Sequence[Constants]) -> PackedBatch:
        def sequence(positions: Sequence[Tensor]) -> PackedSequence:
            return PackedSequence([table.shape[1] for table in positions], positions[0].device)

        text = sequence([image.text_positions for image in images])
        image_sequence = sequence([image.image_positions for image in images])
        references = sequence([image.reference_positions for image in images])
        visual = InterleavedSequence(image_sequence, references)
        joint = InterleavedSequence(text, visual)
        constants = Constants(
            text=torch.cat([image.text for image in images], dim=1),
            references=_concat([image.references for image in images]),
            channels=_concat([image.channels for image in images]),
            pooled=_concat([image.pooled for image in images], dim=0),
            text_positions=torch.cat([image.text_positions for image in images], dim=1),
            image_positions=torch.cat([image.image_positions for image in images], dim=1),
            reference_positions=torch.cat([image.reference_positions for image in images], dim=1),
        )
        visual_positions = visual.interleave(constants.image_positions, constants.reference_positions)
        return cls(
            text,
            image_sequence,
            references,
            visual,
            joint,
            constants,
            joint.interleave(constants.text_positions, visual_positions),
        )


def _concat(parts: Sequence[Tensor | None], dim: int = 1) -> Tensor | None:
    """Joins the parts that are not None; None if there are none."""
    present = [part for part in parts if part is not None]
    return torch.cat(present, dim=dim) if present else None


Attention: TypeAlias = Callable[[Tensor, Tensor, Tensor, PackedSequence], Tensor]
"""Maps queries, keys and values of a sequence, (1, T, heads, width) each, to attended values of the same shape."""


def sdpa_loop(q: Tensor, k: Tensor, v: Tensor, sequence: PackedSequence) -> Tensor:
    """Calls torch's attention per image, or once for images of equal length. For every device and precision."""
    if len(set(sequence.lengths)) == 1:
        q, k, v = (x.unflatten(1, (-1, sequence.lengths[0]))[0] for x in (q, k, v))
        return _attend(q, k, v).flatten(0, 1)[None]
    images = zip(sequence.split(q), sequence.split(k), sequence.split(v), strict=True)
    return torch.cat([_attend(*image) for image in images if image[0].shape[1]], dim=1)


def varlen(q: Tensor, k: Tensor, v: Tensor, sequence: PackedSequence) -> Tensor:
    """Calls torch's flash kernels once. For CUDA in half precision."""
    from torch.nn.attention.varlen import varlen_attn

    longest = max(sequence.lengths)
    output = varlen_attn(q[0], k[0], v[0], sequence.cu_seqlens, sequence.cu_seqlens, longest, longest)
    assert isinstance(output, Tensor)
    return output[None]


def xformers(q: Tensor, k: Tensor, v: Tensor, sequence: PackedSequence) -> Tensor:
    """Calls xformers' kernels once. For CUDA in every precision."""
    from xformers.ops import fmha  # pyright: ignore[reportMissingImports]

    if sequence.block_mask is None:
        sequence.block_mask = fmha.attn_bias.BlockDiagonalMask.from_seqlens(sequence.lengths, device=q.device)
    return fmha.memory_efficient_attention(q, k, v, attn_bias=sequence.block_mask)


def flash(q: Tensor, k: Tensor, v: Tensor, sequence: PackedSequence) -> Tensor:
    """Calls the flash-attn package once. For CUDA in half precision."""
    from flash_attn import flash_attn_varlen_func  # pyright: ignore[reportMissingImports]

    longest = max(sequence.lengths)
    return flash_attn_varlen_func(q[0], k[0], v[0], sequence.cu_seqlens, sequence.cu_seqlens, longest, longest)[None]


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attends within each row; all are (B, T, heads, width)."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2)


ATTENTIONS: Final[Mapping[str, Attention]] = MappingProxyType(
    {"varlen": varlen, "xformers": xformers, "flash": flash, "sdpa_loop": sdpa_loop}
)
"""Attention backends by their names in configurations."""


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Inputs of a step, one number per image, (B,) float32, on the network's device."""

    t: Tensor
    """Flow time; 1 is pure noise."""
    t_next: Tensor
    """Flow time after the step."""
    guidance: Tensor | None = None
    """Embedded guidance; None for models without."""
