"""What the packed forwards of all transformers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from diffusers.models.embeddings import apply_rotary_emb
from torch import Tensor

from deployments.adapters.segments import AdaptedLayers, AppliedAdapter
from deployments.families.moment import Moment
from deployments.families.packed.attention import Attention, one_by_one
from deployments.families.packed.row import Row
from deployments.families.packed.tokens import Constants, Packed
from deployments.families.state import State


class PackedForward(ABC):
    """A transformer's forward over a row of pictures."""

    def __init__(self, transformer: Any) -> None:
        self.attention: Attention = one_by_one
        self._net: Any = transformer
        self._adapted = AdaptedLayers(transformer)

    def __call__(self, x: Tensor, states: Sequence[State], moment: Moment) -> Tensor:
        """The tokens of the pictures of `states` in a row, (1, T, C) float32, to their velocities, likewise.

        Pictures of one adapter should lie beside each other.
        """
        packed = self._packed(states)
        with self._adapted.applied([state.adapter for state in states]):
            return self._velocities(x.to(self._net.dtype), packed, moment).float()

    def adapted(self, adapter: AppliedAdapter | None) -> AbstractContextManager[None]:
        """Within it the transformer's own forward of a single picture has that adapter."""
        return self._adapted.applied([adapter])

    @abstractmethod
    def _constants(self, state: State) -> Constants:
        """What of a picture is the same in every step."""

    @abstractmethod
    def _velocities(self, x: Tensor, packed: Packed, moment: Moment) -> Tensor:
        """As `__call__`, in the network's precision."""

    def _packed(self, states: Sequence[State]) -> Packed:
        """Kept with the first picture until the batch has other members."""
        first, *others = states
        if first.packed is not None and first.packed[0] == others:
            return first.packed[1]
        constants = []
        for state in states:
            state.packed = None
            if state.constants is None:
                with self._adapted.applied([state.adapter]):
                    state.constants = self._constants(state)
            constants.append(state.constants)
        packed = Packed.of(constants)
        first.packed = others, packed
        return packed

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, row: Row) -> Tensor:
        """Queries and keys, normed, and values, (1, T, heads, width) each, to (1, T, heads x width)."""
        q, k = (_rotated(x, positions).to(v.dtype) for x in (q, k))
        return self.attention(q, k, v, row).flatten(2)


def _rotated(x: Tensor, positions: Tensor) -> Tensor:
    rotate: Any = apply_rotary_emb  # its types are narrower than what it takes
    return rotate(x, positions.unbind(), sequence_dim=1)
