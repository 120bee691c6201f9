"""Attention of a row of pictures in which each one attends to itself alone.

Which way is best depends on the device and its packages, so they are named in the configuration and tried at start-up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.families.packed.row import Row

Attention: TypeAlias = Callable[[Tensor, Tensor, Tensor, Row], Tensor]
"""Queries, keys and values of a row, (1, T, heads, width) each, to what was attended to, of the same shape."""


def one_by_one(q: Tensor, k: Tensor, v: Tensor, row: Row) -> Tensor:
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
    {"varlen": varlen, "xformers": xformers, "flash": flash, "one_by_one": one_by_one}
)
"""By the names that configurations have for them."""
