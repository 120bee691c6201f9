"""LoRA weights: reading them, and the byte-bounded cache of a replica.

A file is read with safetensors, so nothing in it is ever executed. Its names may follow any of the conventions of
`formats.py`; every matrix must belong to a linear layer of the base and fit it, or the file is refused as a whole:
an adapter that applies in part would look like one that does not work.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import safetensors
import safetensors.torch
import torch
from obstore.exceptions import BaseError
from safetensors import SafetensorError
from torch import Tensor, nn

from deployments.backend import JobError, Unavailable
from deployments.contract.job import Adapter
from deployments.contract.objects import ObjectStore
from deployments.lora.formats import AdapterError, Matrices, by_layer, read_header
from deployments.lru_cache import ByteCache, CacheStats
from deployments.torch_process import SideStream


@dataclass(frozen=True, slots=True)
class LowRank:
    """One layer's part: it adds `scale * up @ down @ x`. `down` is (rank, in), `up` (out, rank)."""

    down: Tensor
    up: Tensor
    scale: float
    """alpha / rank; alpha / sqrt(rank) for rsLoRA (arXiv:2312.03732)."""


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    layers: dict[str, LowRank]
    """By the name of the linear layer inside the transformer."""

    @property
    def rank(self) -> int:
        return max(len(layer.down) for layer in self.layers.values())

    @property
    def nbytes(self) -> int:
        return sum(layer.down.nbytes + layer.up.nbytes for layer in self.layers.values())


def read_weights(data: bytes, transformer: nn.Module) -> AdapterWeights:
    """The adapter in a safetensors file, its matrices in the transformer's precision and on its device.

    `transformer` may be on the meta device: then only names and shapes are checked. Raises AdapterError, and what
    torch raises where a device has no room or is broken.
    """
    try:
        layers = _read(data, transformer)
    except AdapterError:
        raise
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        # Whatever hostile or broken files make of the steps below, they are no adapters.
        raise AdapterError("it is damaged, or no LoRA") from error
    # What goes wrong with the device is no fault of the file.
    return AdapterWeights(_on_device(layers, transformer))


def _read(data: bytes, transformer: nn.Module) -> dict[str, LowRank]:
    config = _declared_config(read_header(io.BytesIO(data)))
    try:
        tensors = safetensors.torch.load(data)
    except (SafetensorError, ValueError) as error:
        raise AdapterError("not a safetensors file") from error
    linears = {name: module for name, module in transformer.named_modules() if isinstance(module, nn.Linear)}
    alphas, use_rslora = _declared_alphas(config), bool(config.get("use_rslora"))
    return {
        name: _layer(name, matrices, linears[name], alphas, use_rslora)
        for name, matrices in by_layer(tensors, linears).items()
    }


def _declared_config(header: dict[str, Any]) -> dict[str, Any]:
    """PEFT's configuration in the file's header, where diffusers wrote one."""
    metadata = header.get("__metadata__", {}).get("lora_adapter_metadata") or "{}"
    return {k.removeprefix("transformer."): v for k, v in json.loads(metadata).items()}


def _declared_alphas(config: dict[str, Any]) -> dict[str, float]:
    """Alphas by layer, or by the end of layers' names; under "" the one for all layers."""
    patterns = {str(k): float(v) for k, v in (config.get("alpha_pattern") or {}).items()}
    return ({"": float(config["lora_alpha"])} if "lora_alpha" in config else {}) | patterns


def _layer(name: str, matrices: Matrices, linear: nn.Linear, alphas: dict[str, float], use_rslora: bool) -> LowRank:
    down, up = matrices.down, matrices.up
    rank = len(down)
    if rank > max(linear.in_features, linear.out_features):
        raise AdapterError(f"{name} is of rank {rank}, more than the base's layer has rows and columns")
    alpha = _alpha(name, alphas, float(rank)) if matrices.alpha is None else matrices.alpha
    numbers = down.is_floating_point() and up.is_floating_point() and math.isfinite(alpha)
    if rank == 0 or not (numbers and torch.isfinite(down).all() and torch.isfinite(up).all()):
        raise AdapterError(f"{name} is empty, or not all numbers")
    return LowRank(down, up, alpha / (math.sqrt(rank) if use_rslora else rank))


def _alpha(name: str, alphas: dict[str, float], otherwise: float) -> float:
    """PEFT's patterns name a layer, or the end of its name from a dot on."""
    ends = [name, *(name[place + 1 :] for place, letter in enumerate(name) if letter == ".")]
    return next((alphas[end] for end in [*ends, ""] if end in alphas), otherwise)


def _on_device(layers: dict[str, LowRank], transformer: nn.Module) -> dict[str, LowRank]:
    """All matrices in one copy: each copy waits for the step in progress, and an adapter has hundreds of matrices."""
    weight = transformer.get_submodule(next(iter(layers))).get_parameter("weight")
    if weight.is_meta:
        return layers
    matrices = [matrix for layer in layers.values() for matrix in (layer.down, layer.up)]
    flat = torch.cat([matrix.flatten().to(weight.dtype) for matrix in matrices])
    if weight.is_cuda:
        flat = flat.pin_memory()
    parts = iter(flat.to(weight.device, non_blocking=True).split([matrix.numel() for matrix in matrices]))
    return {
        name: LowRank(next(parts).view_as(layer.down), next(parts).view_as(layer.up), layer.scale)
        for name, layer in layers.items()
    }


class AdapterCache:
    """The adapters that a replica holds. Used from any thread."""

    def __init__(self, transformer: nn.Module, store: ObjectStore, limit: int) -> None:
        """`limit` bytes of weights are kept beside those in use, and the latest adapter however large it is."""
        self._transformer = transformer
        self._device = next(transformer.parameters()).device
        self._store = store
        self._cache: ByteCache[str, AdapterWeights] = ByteCache(limit, lambda weights: weights.nbytes, at_least=1)
        self._lock = Lock()
        self._turns: dict[str, tuple[Lock, int]] = {}
        """Who loads an adapter now, and how many want it."""

    @property
    def stats(self) -> CacheStats:
        return self._cache.stats

    def clear(self) -> None:
        self._cache.clear()

    def get(self, adapter: Adapter) -> AdapterWeights:
        """Loads what is not here. Raises JobError for a file that is gone or no adapter, Unavailable."""
        with self._turn(adapter.id):
            return self._cache.get_or_create(adapter.id, partial(self._load, adapter.key))

    @contextmanager
    def _turn(self, adapter_id: str) -> Iterator[None]:
        """One after the other: jobs of one adapter come together, and each would load all of it."""
        with self._lock:
            turn, others = self._turns.get(adapter_id, (Lock(), 0))
            self._turns[adapter_id] = turn, others + 1
        try:
            with turn:
                yield
        finally:
            with self._lock:
                _, waiting = self._turns.pop(adapter_id)
                if waiting > 1:
                    self._turns[adapter_id] = turn, waiting - 1

    def _load(self, key: str) -> AdapterWeights:
        try:
            data = self._store.get_blocking(key)
            with SideStream(self._device).beside_the_steps():
                return read_weights(data, self._transformer)
        except FileNotFoundError:
            raise JobError("the tuned model is no longer available") from None
        except AdapterError as error:
            raise JobError(f"the tuned model can't be used: {error}") from error
        except (BaseError, OSError) as error:
            raise Unavailable(str(error)) from error
