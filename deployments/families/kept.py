"""Tensors that outlive the job they were made for."""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor

T = TypeVar("T", bound=Tensor | tuple[Tensor, ...])


def size_of(value: Tensor | tuple[Tensor, ...]) -> int:
    """Bytes that it takes."""
    return sum(tensor.nbytes for tensor in ((value,) if isinstance(value, Tensor) else value))


def apart(batch: Tensor) -> list[Tensor]:
    """(B, ...) to B tensors (1, ...), none of which keeps the others in memory."""
    return list(batch.split(1)) if len(batch) == 1 else [one.clone() for one in batch.split(1)]
