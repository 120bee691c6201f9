"""A start at which attention can tell neighbouring tokens apart.

Queries and keys are normed, so their gains bound how much more one token can count than another: with the usual gain of
1 and 32 numbers per head, a token next to the right one counts nearly as much. Gains move slowly in training, and
copying a reference or drawing a clean outline has to wait for them. Where to look is what the fast rotations of the two
spatial axes say, so those get the larger gain; what to look for is said by all other numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

WHERE, WHAT = 3.0, 1.5
_FAST = 0.2
"""Radians from one token to the next."""

_NORMS = ("norm_q", "norm_k", "norm_added_q", "norm_added_k")
_SPATIAL = (1, 2)
"""Of the axes of position ids."""


@torch.no_grad()
def sharpen(transformer: nn.Module, axes: Sequence[int], theta: float, step: float = 1.0) -> None:
    """Sets the gains of all queries and keys. `axes` are the numbers per axis of positions, which count by `step`."""
    gains = torch.cat([_gains(size, theta, step if axis in _SPATIAL else 0.0) for axis, size in enumerate(axes)])
    for name, module in transformer.named_modules():
        if name.rpartition(".")[2] in _NORMS:
            module.get_parameter("weight").copy_(gains)


def _gains(size: int, theta: float, step: float) -> Tensor:
    """(size,): two numbers per rotation, from the fastest to the slowest."""
    speeds = step * theta ** (-torch.arange(0, size, 2) / size)
    return torch.where(speeds >= _FAST, WHERE, WHAT).repeat_interleave(2)
