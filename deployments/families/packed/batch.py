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


class Row:
    """Tokens of several pictures one after the other, (1, T, D): first all of picture 0, then all of picture 1, ..."""

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        """`lengths[k]` tokens are picture k's; it may have none."""
        self.lengths = list(lengths)
        self.starts = [0, *accumulate(lengths)]
        """The first token of each picture, and the end of the last."""
        self.bounds = torch.tensor(self.starts, dtype=torch.int32).to(device)
        """`starts` as kernels take them, (B + 1,)."""
        whose = torch.repeat_interleave(torch.arange(len(self.lengths)), torch.tensor(self.lengths))
        self.picture = whose.to(device)
        """Whose each token is, (T,)."""
        self.block_mask: Any = None
        """xformers' mask of the row, once one was made: every block of every step needs it."""

    @property
    def total(self) -> int:
        return self.starts[-1]

    def spread(self, per_picture: Tensor) -> Tensor:
        """(B, D), a line for each picture, to (1, T, D), a line for each token."""
        return per_picture.index_select(0, self.picture)[None]

    def split(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """(1, T, ...) to (1, T_k, ...) per picture."""
        return tokens.split(self.lengths, dim=1)


class JointRow(Row):
    """The tokens of two rows of the same pictures, brought together: of picture 0 those of the first row, then those of
    the second; then picture 1's, ..."""

    def __init__(self, first: Row, second: Row) -> None:
        device = first.picture.device
        super().__init__([a + b for a, b in zip(first.lengths, second.lengths, strict=True)], device)
        self._totals = [first.total, second.total]
        places = [
            torch.arange(offset + row.starts[picture], offset + row.starts[picture + 1])
            for picture in range(len(self.lengths))
            for row, offset in ((first, 0), (second, first.total))
        ]
        order = torch.cat(places)
        self._order = order.to(device)
        self._back = torch.argsort(order).to(device)

    def gathered(self, first: Tensor, second: Tensor | None) -> Tensor:
        """The tokens of both rows, (n, T_1, ...) and (n, T_2, ...), in this row's order. None where a row has none."""
        if second is None:
            return first
        return torch.cat([first, second], dim=1).index_select(1, self._order)

    def scattered(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """What `gathered` brought together, by row again."""
        if not self._totals[1]:
            return tokens, tokens[:, :0]
        first, second = tokens.index_select(1, self._back).split(self._totals, dim=1)
        return first, second


@dataclass(frozen=True, slots=True)
class Constants:
    """Of a picture, or of all pictures of a row."""

    text: Tensor
    """(1, L, D), as the first block sees it."""
    references: Tensor | None
    """(1, M, D), likewise."""
    channels: Tensor | None
    """(1, N, K): what is joined to every token of the picture."""
    pooled: Tensor | None
    """(B, P): the prompt as a whole."""
    text_positions: Tensor
    """Cosines and sines, (2, L, width of a head)."""
    picture_positions: Tensor
    reference_positions: Tensor
    """Of no length where there are no references."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Pictures in a row, and where in it what is."""

    text: Row
    picture: Row
    references: Row
    image: JointRow
    """Pictures and references."""
    joint: JointRow
    """Text and image."""
    constants: Constants
    joint_positions: Tensor

    @classmethod
    def of(cls, pictures: Sequence[Constants]) -> Packed:
        def row(positions: Sequence[Tensor]) -> Row:
            return Row([table.shape[1] for table in positions], positions[0].device)

        text = row([picture.text_positions for picture in pictures])
        drawn = row([picture.picture_positions for picture in pictures])
        references = row([picture.reference_positions for picture in pictures])
        image = JointRow(drawn, references)
        joint = JointRow(text, image)
        constants = Constants(
            text=torch.cat([picture.text for picture in pictures], dim=1),
            references=_joined([picture.references for picture in pictures]),
            channels=_joined([picture.channels for picture in pictures]),
            pooled=_joined([picture.pooled for picture in pictures], dim=0),
            text_positions=torch.cat([picture.text_positions for picture in pictures], dim=1),
            picture_positions=torch.cat([picture.picture_positions for picture in pictures], dim=1),
            reference_positions=torch.cat([picture.reference_positions for picture in pictures], dim=1),
        )
        of_image = image.gathered(constants.picture_positions, constants.reference_positions)
        return cls(text, drawn, references, image, joint, constants, joint.gathered(constants.text_positions, of_image))


def _joined(parts: Sequence[Tensor | None], dim: int = 1) -> Tensor | None:
    """Those that there are; None if there is none."""
    there = [part for part in parts if part is not None]
    return torch.cat(there, dim=dim) if there else None


Attention: TypeAlias = Callable[[Tensor, Tensor, Tensor, Row], Tensor]
"""Queries, keys and values of a row, (1, T, heads, width) each, to what was attended to, of the same shape."""


def sdpa_loop(q: Tensor, k: Tensor, v: Tensor, row: Row) -> Tensor:
    """A call for each picture, or one for pictures of one length; on every device and in every precision."""
    if len(set(row.lengths)) == 1:
        q, k, v = (x.unflatten(1, (-1, row.lengths[0]))[0] for x in (q, k, v))
        return _attended(q, k, v).flatten(0, 1)[None]
    pictures = zip(row.split(q), row.split(k), row.split(v), strict=True)
    return torch.cat([_attended(*picture) for picture in pictures if picture[0].shape[1]], dim=1)


def varlen(q: Tensor, k: Tensor, v: Tensor, row: Row) -> Tensor:
    """One call, by the flash kernels that torch brings: on CUDA, in half precision."""
    from torch.nn.attention.varlen import varlen_attn

    longest = max(row.lengths)
    attended = varlen_attn(q[0], k[0], v[0], row.bounds, row.bounds, longest, longest)
    assert isinstance(attended, Tensor)
    return attended[None]


def xformers(q: Tensor, k: Tensor, v: Tensor, row: Row) -> Tensor:
    """One call, by xformers' kernels: on CUDA, in every precision."""
    from xformers.ops import fmha  # pyright: ignore[reportMissingImports]

    if row.block_mask is None:
        row.block_mask = fmha.attn_bias.BlockDiagonalMask.from_seqlens(row.lengths, device=q.device)
    return fmha.memory_efficient_attention(q, k, v, attn_bias=row.block_mask)


def flash(q: Tensor, k: Tensor, v: Tensor, row: Row) -> Tensor:
    """One call, by the flash-attn package: on CUDA, in half precision."""
    from flash_attn import flash_attn_varlen_func  # pyright: ignore[reportMissingImports]

    longest = max(row.lengths)
    return flash_attn_varlen_func(q[0], k[0], v[0], row.bounds, row.bounds, longest, longest)[None]


def _attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(B, T, heads, width) each."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2)


ATTENTIONS: Final[Mapping[str, Attention]] = MappingProxyType(
    {"varlen": varlen, "xformers": xformers, "flash": flash, "sdpa_loop": sdpa_loop}
)
"""By the names that configurations have for them."""


@dataclass(frozen=True, slots=True)
class StepInputs:
    """One number for each picture, (B,) float32, on the network's device."""

    t: Tensor
    """Flow time, 1 for noise alone."""
    t_next: Tensor
    """The time that this step goes to."""
    guidance: Tensor | None = None
    """How strongly the prompt acts; None for models that aren't told."""
