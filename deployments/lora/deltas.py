"""Deltas: what an adapter adds to the output of one layer.

All kinds are linear in the layer's weight and bias. So the layer itself stays unchanged: quantized, and shared with
requests that have another adapter or none.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta(ABC):
    scale: float = 1.0

    @abstractmethod
    def __call__(self, layer: Any, x: Tensor) -> Tensor:
        """Returns the addition to the output of `layer` for the input `x`, at scale 1."""

    @abstractmethod
    def weight_change(self, layer: Any) -> Tensor | None:
        """Returns what a call adds as a change of the layer's weight, at scale 1; None for a change of the bias."""

    @property
    def rank(self) -> int:
        return 0

    @property
    @abstractmethod
    def anchor(self) -> Tensor:
        """One of its tensors, which all have the same device and type."""

    @property
    def tensors(self) -> list[Tensor]:
        values = [getattr(self, each.name) for each in dataclasses.fields(self)]
        return [value for value in values if isinstance(value, Tensor)]

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Returns a copy with each tensor changed, in the order of `tensors`."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return dataclasses.replace(self, **{k: change(v) for k, v in values.items() if isinstance(v, Tensor)})


@dataclass(frozen=True, slots=True)
class LowRank(Delta):
    """LoRA: `scale * up @ down`. `down` is (rank, in), or (rank, in, *kernel) of a convolution; `up` is (out, rank)."""

    down: Tensor
    up: Tensor

    @property
    def rank(self) -> int:
        return len(self.down)

    @property
    def anchor(self) -> Tensor:
        return self.down

    def __call__(self, layer: Any, x: Tensor) -> Tensor:
        if self.down.ndim == 2:
            return F.linear(F.linear(x, self.down), self.up)
        low = layer._conv_forward(x, self.down, None)
        return (self.up @ low.flatten(2)).unflatten(2, low.shape[2:])

    def weight_change(self, layer: Any) -> Tensor:
        return (self.up @ self.down.flatten(1)).view(-1, *self.down.shape[1:])


@dataclass(frozen=True, slots=True)
class Hadamard(Delta):
    """LoHa: the elementwise product of two low-rank matrices, computed at each call to save memory."""

    first_up: Tensor
    first_down: Tensor
    second_up: Tensor
    second_down: Tensor

    @property
    def rank(self) -> int:
        return len(self.first_down)

    @property
    def anchor(self) -> Tensor:
        return self.first_up

    def __call__(self, layer: Any, x: Tensor) -> Tensor:
        return apply_weight(layer, x, self.weight_change(layer))

    def weight_change(self, layer: Any) -> Tensor:
        weight = (self.first_up @ self.first_down) * (self.second_up @ self.second_down)
        return weight.view(-1, *layer.weight.shape[1:]) if isinstance(layer, _ConvNd) else weight


@dataclass(frozen=True, slots=True)
class Kronecker(Delta):
    """LoKr: the Kronecker product of `left` (a, b) and `right` (c, d, *kernel), or `right` (c, rank) @ `inner`."""

    left: Tensor
    right: Tensor
    inner: Tensor | None = None
    rows: slice = field(default_factory=lambda: slice(None))

    @property
    def rank(self) -> int:
        return 0 if self.inner is None else len(self.inner)

    @property
    def anchor(self) -> Tensor:
        return self.left

    def __call__(self, layer: Any, x: Tensor) -> Tensor:
        if isinstance(layer, _ConvNd):
            parts = x.unflatten(1, (self.left.shape[1], -1))
            y = layer._conv_forward(parts.flatten(0, 1), self.right, None).unflatten(0, parts.shape[:2])
            return torch.einsum("ab,nbc...->nac...", self.left, y).flatten(1, 2)[:, self.rows]
        y = x.unflatten(-1, (self.left.shape[1], -1))
        y = F.linear(y if self.inner is None else F.linear(y, self.inner), self.right)
        return (self.left @ y).flatten(-2)[..., self.rows]

    def weight_change(self, layer: Any) -> Tensor:
        right = self.right if self.inner is None else self.right @ self.inner
        return torch.kron(self.left.view(*self.left.shape, *[1] * (right.ndim - 2)), right)[self.rows]


@dataclass(frozen=True, slots=True)
class Difference(Delta):
    """A difference of a layer's whole weight, or of its bias."""

    weight: Tensor | None = None
    bias: Tensor | None = None

    @property
    def anchor(self) -> Tensor:
        return self.weight if self.weight is not None else self.bias  # type: ignore[return-value]

    def __call__(self, layer: Any, x: Tensor) -> Tensor:
        if self.weight is not None:
            return apply_weight(layer, x, self.weight)
        assert self.bias is not None
        channels_first = isinstance(layer, (_ConvNd, nn.GroupNorm))
        return self.bias.view(-1, *[1] * (x.ndim - 2)) if channels_first else self.bias

    def weight_change(self, layer: Any) -> Tensor | None:
        return self.weight


def apply_weight(layer: Any, x: Tensor, weight: Tensor) -> Tensor:
    """Returns the output of `layer` with another weight and no bias."""
    if isinstance(layer, nn.Linear):
        return F.linear(x, weight)
    if isinstance(layer, _ConvNd):
        return layer._conv_forward(x, weight, None)  # type: ignore[attr-defined]
    twin = copy.copy(layer)
    twin._parameters = {"weight": weight, "bias": None}
    # The class's method, as hooks replace that of the instance.
    return type(layer).forward(twin, x)
