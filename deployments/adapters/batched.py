"""Adapters inside a batch: each row of a forward gets its own, at its own strength, or none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deployments.adapters.weights import LowRank


@dataclass(frozen=True, slots=True)
class AppliedAdapter:
    """An adapter at a strength, for one picture."""

    layers: Mapping[str, LowRank]
    strength: float


@contextmanager
def adapted(transformer: nn.Module, rows: Sequence[AppliedAdapter | None]) -> Iterator[None]:
    """Within it a forward of `len(rows)` rows applies to each row what is named for it.

    Rows without an adapter, or at strength 0, are computed exactly as without this context.
    """
    parts: dict[str, list[tuple[int, LowRank, float]]] = defaultdict(list)
    for row, applied in enumerate(rows):
        if applied is not None and applied.strength != 0:
            for name, layer in applied.layers.items():
                parts[name].append((row, layer, layer.scale * applied.strength))
    hooks = [
        transformer.get_submodule(name).register_forward_hook(_adding(layers, len(rows)))
        for name, layers in parts.items()
    ]
    # Compiled blocks don't see hooks that come later, so such a forward runs as it is written.
    uncompiled = torch.compiler.set_stance("force_eager") if hooks and _is_compiled(transformer) else nullcontext()
    try:
        with uncompiled:
            yield
    finally:
        for hook in hooks:
            hook.remove()


def _is_compiled(transformer: nn.Module) -> bool:
    return any(getattr(module, "_compiled_call_impl", None) is not None for module in transformer.modules())


def _adding(layers: Sequence[tuple[int, LowRank, float]], batch: int):
    def add(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        x = inputs[0]
        if x.shape[0] != batch:
            raise RuntimeError(f"a layer sees {x.shape[0]} rows in a batch of {batch}")
        # Row by row: a batch holds few adapters, and one matrix product per row costs what a grouped one does.
        for row, layer, weight in layers:
            output[row] += torch.nn.functional.linear(torch.nn.functional.linear(x[row], layer.down), layer.up) * weight
        return output

    return add
