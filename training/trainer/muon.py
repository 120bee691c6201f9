"""Muon (Keller Jordan, 2024) for matrices, and for the filters of convolutions.

Stock `torch.optim.Muon` takes matrices only, one by one, and in bfloat16, which many CPUs merely emulate: a third of
a step. Here those of one shape are orthogonalized together, in single precision. A filter (out, in, h, w) is the
matrix (out, in h w).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
_ITERATIONS = 4
_QUINTIC = (3.4445, -4.7750, 2.0315)
"""Of the Newton-Schulz iteration: takes singular values to about 1."""


class Muon(torch.optim.Optimizer):
    def __init__(self, weights: Iterable[nn.Parameter], lr: float) -> None:
        """Of two dimensions or more."""
        super().__init__(weights, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            alike: defaultdict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[parameter.shape].append(parameter)
            for parameters in alike.values():
                updates = orthogonal(torch.stack([self._direction(parameter) for parameter in parameters]))
                rate = group["lr"] * max(1.0, updates.shape[1] / updates.shape[2]) ** 0.5
                for parameter, update in zip(parameters, updates, strict=True):
                    parameter.add_(update.reshape(parameter.shape), alpha=-rate)

    def _direction(self, parameter: nn.Parameter) -> Tensor:
        assert parameter.grad is not None
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum: Tensor = state["momentum"].lerp_(parameter.grad, 1 - MOMENTUM)
        return parameter.grad.lerp(momentum, MOMENTUM).reshape(parameter.shape[0], -1)


def orthogonal(matrices: Tensor) -> Tensor:
    """(B, M, N) to the nearest whose singular values all are about 1."""
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonal(matrices.mT).mT
    x = matrices / (matrices.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    a, b, c = _QUINTIC
    for _ in range(_ITERATIONS):
        squared = x @ x.mT
        x = a * x + (b * squared + c * squared @ squared) @ x
    return x
