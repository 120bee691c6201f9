"""LoRA in a packed forward: each image has its own adapter at its own strength, or none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn

from deployments.lora.deltas import Delta
from deployments.lora.weights import Networks


@dataclass(frozen=True, slots=True)
class AppliedAdapter:
    layers: Mapping[str, tuple[Delta, ...]]
    """Deltas by component and layer."""
    strength: float


class TokenLayout(Protocol):
    @property
    def offsets(self) -> Sequence[int]:
        """First token of each image, and the end of the last."""
        ...

    @property
    def seq_index(self) -> Tensor:
        """Index of each token's image, (T,)."""
        ...


@dataclass(slots=True)
class _Run:
    """Adjacent images with the same adapter, from `first` on, one for each strength."""

    first: int
    layers: Mapping[str, tuple[Delta, ...]]
    strengths: list[float]
    whole: bool = False
    """True when the whole input of a forward belongs to the run."""

    @property
    def end(self) -> int:
        return self.first + len(self.strengths)


class AdaptedLayers:
    """The layers of a pipeline's networks that adapters change. Deltas for other networks are ignored."""

    def __init__(self, networks: Networks) -> None:
        self._networks = networks
        self._modules: dict[str, nn.Module] = {}
        """Layers that an adapter has changed, by component and layer."""
        self._parts: Mapping[str, Sequence[tuple[_Run, Delta]]] = {}
        self._moved: dict[int, Delta] = {}
        """Copies of deltas on the device of a layer's input, by the ids of the originals."""
        self._tokens: TokenLayout | None = None

    def has_layers_of(self, adapter: AppliedAdapter) -> bool:
        return any(name.partition(".")[0] in self._networks for name in adapter.layers)

    @contextmanager
    def apply(self, adapters: Sequence[AppliedAdapter | None]) -> Iterator[None]:
        """Makes a forward of a batch add to each image the adapter at its index.

        Images with the same adapter should be adjacent, so that one matrix product serves them all. Images without one
        are computed exactly as outside of this context.
        """
        parts: dict[str, list[tuple[_Run, Delta]]] = defaultdict(list)
        for run in _runs(adapters):
            for name, deltas in run.layers.items():
                if name.partition(".")[0] in self._networks:
                    parts[name].extend((run, delta) for delta in deltas)
        # Removed afterwards, as each hook would have blocks compiled anew.
        hooks = [self._layer(name).register_forward_hook(partial(self._add, name)) for name in parts]
        self._parts = parts
        try:
            # Compiled code ignores hooks, and with them the adapter.
            with torch.compiler.set_stance("force_eager") if parts and self._are_compiled else nullcontext():
                yield
        finally:
            self._parts, self._moved = {}, {}
            for hook in hooks:
                hook.remove()

    @contextmanager
    def applied_to_all(self, adapter: AppliedAdapter) -> Iterator[None]:
        """Makes every forward add the adapter to its whole batch."""
        with self.apply([adapter]):
            for parts in self._parts.values():
                for run, _ in parts:
                    run.whole = True
            yield

    @contextmanager
    def over(self, tokens: TokenLayout) -> Iterator[None]:
        """Declares the input of layers as `tokens`, (1, T, D); otherwise it is a row per image, (B, D)."""
        self._tokens = tokens
        try:
            yield
        finally:
            self._tokens = None

    @property
    def _are_compiled(self) -> bool:
        modules = (module for network in self._networks.values() for module in network.modules())
        return any(module._compiled_call_impl is not None for module in modules)

    def _layer(self, name: str) -> nn.Module:
        if name not in self._modules:
            component, _, layer = name.partition(".")
            self._modules[name] = self._networks[component].get_submodule(layer)
        return self._modules[name]

    def _add(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        for run, delta in self._parts.get(name, ()):
            x, tokens = inputs[0], self._tokens
            image_of_token: Tensor | None = None
            if run.whole:
                hidden, target = x, output
            elif tokens is None:
                hidden, target = x[run.first : run.end], output[run.first : run.end]
            else:
                span = slice(tokens.offsets[run.first], tokens.offsets[run.end])
                hidden, target, image_of_token = x[0, span], output[0, span], tokens.seq_index[span]
            anchor = delta.anchor
            if anchor.device != x.device:
                delta = self._on_device(delta, x.device)
            update = delta(module, hidden if hidden.dtype == anchor.dtype else hidden.to(anchor.dtype))
            if len(set(run.strengths)) == 1:
                target += update * (delta.scale * run.strengths[0])
            else:
                strengths = torch.tensor(run.strengths, dtype=update.dtype, device=update.device) * delta.scale
                if image_of_token is not None:
                    strengths = strengths.index_select(0, image_of_token - run.first)
                target += update * strengths.view(-1, *[1] * (target.ndim - 1))

    def _on_device(self, delta: Delta, device: torch.device) -> Delta:
        """Returns the delta on `device`, as offloaded networks move."""
        if id(delta) not in self._moved:
            self._moved[id(delta)] = delta.map(lambda tensor: tensor.to(device, non_blocking=True))
        return self._moved[id(delta)]


def _runs(adapters: Sequence[AppliedAdapter | None]) -> list[_Run]:
    runs: list[_Run] = []
    for index, adapter in enumerate(adapters):
        if adapter is None:
            continue
        if runs and runs[-1].end == index and runs[-1].layers is adapter.layers:
            runs[-1].strengths.append(adapter.strength)
        else:
            runs.append(_Run(index, adapter.layers, [adapter.strength]))
    return runs
