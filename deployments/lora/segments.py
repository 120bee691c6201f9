"""LoRA in a packed forward: each image's tokens get their own adapter at its own strength, or none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.lora.weights import LowRank


@dataclass(frozen=True, slots=True)
class AppliedAdapter:
    """An adapter at a strength, for one image."""

    layers: Mapping[str, LowRank]
    strength: float


class Tokens(Protocol):
    """Where the tokens of each image lie in a sequence of them."""

    @property
    def offsets(self) -> Sequence[int]:
        """The first token of each image, and the end of the last."""
        ...

    @property
    def seq_index(self) -> Tensor:
        """Whose each token is, (T,)."""
        ...


@dataclass(slots=True)
class _Run:
    """Images beside each other that have the same adapter: `first` and as many as there are strengths."""

    first: int
    layers: Mapping[str, LowRank]
    strengths: list[float]
    whole: bool = False
    """All that a forward sees belongs to it."""

    @property
    def end(self) -> int:
        return self.first + len(self.strengths)


class AdaptedLayers:
    """The layers of one transformer that adapters change.

    A layer that an adapter names gets a hook once, which stays, and does nothing while no adapter applies.
    """

    def __init__(self, transformer: nn.Module) -> None:
        self._transformer = transformer
        self._modules: dict[str, nn.Module] = {}
        """Its layers that ever were, by their names."""
        self._parts: Mapping[str, Sequence[tuple[_Run, LowRank]]] = {}
        self._tokens: Tokens | None = None

    @contextmanager
    def apply(self, adapters: Sequence[AppliedAdapter | None]) -> Iterator[None]:
        """Within it a forward of so many images adds to each what is named for it.

        Images of one adapter should lie beside each other: one matrix product serves them all. Images without one
        are computed exactly as without this context.
        """
        parts: dict[str, list[tuple[_Run, LowRank]]] = defaultdict(list)
        for run in _runs(adapters):
            for name, layer in run.layers.items():
                parts[name].append((run, layer))
        # Only for so long: in a block that is compiled later on each hook would be a reason to compile it anew.
        hooks = [self._layer(name).register_forward_hook(partial(self._add, name)) for name in parts]
        self._parts = parts
        try:
            yield
        finally:
            self._parts = {}
            for hook in hooks:
                hook.remove()

    @contextmanager
    def applied_to_all(self, adapter: AppliedAdapter) -> Iterator[None]:
        """Within it every forward adds the adapter to all of its batch, whatever that is made of."""
        with self.apply([adapter]):
            for [(run, _)] in self._parts.values():
                run.whole = True
            yield

    @contextmanager
    def over(self, tokens: Tokens) -> Iterator[None]:
        """Within it layers see `tokens`, (1, T, D); elsewhere a line for each image, (B, D)."""
        self._tokens = tokens
        try:
            yield
        finally:
            self._tokens = None

    def _layer(self, name: str) -> nn.Module:
        if name not in self._modules:
            self._modules[name] = self._transformer.get_submodule(name)
        return self._modules[name]

    def _add(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        for run, layer in self._parts.get(name, ()):
            x, tokens = inputs[0], self._tokens
            if run.whole:
                hidden, target, whose = x, output, torch.zeros(())
            elif tokens is None:
                hidden, target = x[run.first : run.end], output[run.first : run.end]
                whose = torch.arange(run.first, run.end, device=x.device)
            else:
                span = slice(tokens.offsets[run.first], tokens.offsets[run.end])
                hidden, target, whose = x[0, span], output[0, span], tokens.seq_index[span]
            low = F.linear(hidden, layer.down)
            if len(set(run.strengths)) == 1:
                target += F.linear(low, layer.up) * (layer.scale * run.strengths[0])
            else:
                strengths = torch.tensor(run.strengths, dtype=low.dtype, device=low.device) * layer.scale
                target += F.linear(low, layer.up) * strengths.index_select(0, whose - run.first)[:, None]


def _runs(adapters: Sequence[AppliedAdapter | None]) -> list[_Run]:
    runs: list[_Run] = []
    for place, adapter in enumerate(adapters):
        if adapter is None:
            continue
        if runs and runs[-1].end == place and runs[-1].layers is adapter.layers:
            runs[-1].strengths.append(adapter.strength)
        else:
            runs.append(_Run(place, adapter.layers, [adapter.strength]))
    return runs
