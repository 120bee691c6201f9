"""Tuned models (LoRA): small matrices added to a transformer's linear layers, per picture.

A file is read with safetensors, so nothing in it is ever executed. Its names may follow any of the conventions that
diffusers converts; after that every matrix must belong to a linear layer of the base and fit it, or the file is refused
as a whole: a tuned model that applies in part would look like one that does not work.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import safetensors
import safetensors.torch
import torch
from diffusers import loaders
from obstore.exceptions import BaseError
from safetensors import SafetensorError
from torch import Tensor, nn

from deployments.contract.job import Adapter
from deployments.contract.objects import ObjectStore
from deployments.engine.backend import JobError, Unavailable

_FORMATS = {
    "FluxTransformer2DModel": "FluxLoraLoaderMixin",
    "Flux2Transformer2DModel": "Flux2LoraLoaderMixin",
    "Flux3Transformer2DModel": "Flux3LoraLoaderMixin",
}
"""Which of diffusers' converters reads tuned models of a transformer class."""

_DOWN, _UP, _ALPHA = ".lora_A.weight", ".lora_B.weight", ".alpha"


class AdapterError(ValueError):
    """A file is no tuned model of this base. Its text says why, fit for the client."""


@dataclass(frozen=True, slots=True)
class LowRank:
    """One layer's part: it adds `scale * up @ down @ x`. `down` is (rank, in), `up` (out, rank)."""

    down: Tensor
    up: Tensor
    scale: float
    """alpha / rank."""


@dataclass(frozen=True, slots=True)
class TunedModel:
    layers: dict[str, LowRank]
    """By the name of the linear layer inside the transformer."""

    @property
    def rank(self) -> int:
        return max(len(layer.down) for layer in self.layers.values())


def read(data: bytes, transformer: nn.Module) -> TunedModel:
    """The tuned model in a safetensors file, its matrices in the transformer's precision and on its device.

    `transformer` may be on the meta device: then only names and shapes are checked. Raises AdapterError.
    """
    try:
        return _read(data, transformer)
    except AdapterError:
        raise
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        # Whatever hostile or broken files make of the steps below, they are no tuned models.
        raise AdapterError("it is damaged, or no LoRA") from error


def _read(data: bytes, transformer: nn.Module) -> TunedModel:
    tensors, alphas = _converted(data, type(transformer).__name__)
    names = {key.removesuffix(suffix) for key in tensors for suffix in (_DOWN, _UP) if key.endswith(suffix)}
    strange = [key for key in tensors if not key.endswith((_DOWN, _UP))]
    if strange or not names:
        raise AdapterError(f"not a LoRA of a transformer: {strange[0] if strange else 'it holds no matrices'}")
    linears = {name: module for name, module in transformer.named_modules() if isinstance(module, nn.Linear)}
    return TunedModel({name: _layer(name, tensors, alphas, linears) for name in sorted(names)})


class AdapterBank:
    """The tuned models that a replica holds, the one unused for longest going first.

    Pictures under way keep what they use: a tuned model that has gone from here is freed with the last of them.
    """

    def __init__(self, transformer: nn.Module, store: ObjectStore, max_resident: int) -> None:
        """Raises ValueError for a bank that could hold none."""
        if max_resident < 1:
            raise ValueError("max_resident must be at least 1")
        self._transformer = transformer
        self._store = store
        self._max_resident = max_resident
        self._resident: OrderedDict[str, TunedModel] = OrderedDict()

    @property
    def resident(self) -> list[str]:
        """Ids, the one unused for longest first."""
        return list(self._resident)

    def get(self, adapter: Adapter) -> TunedModel:
        """Loads what is not here. Raises JobError for a file that is gone or no tuned model, Unavailable."""
        if adapter.id not in self._resident:
            self._resident[adapter.id] = self._load(adapter.key)
        self._resident.move_to_end(adapter.id)
        while len(self._resident) > self._max_resident:
            self._resident.popitem(last=False)
        return self._resident[adapter.id]

    def _load(self, key: str) -> TunedModel:
        try:
            return read(self._store.get_blocking(key), self._transformer)
        except FileNotFoundError:
            raise JobError("the tuned model is no longer available") from None
        except AdapterError as error:
            raise JobError(f"the tuned model can't be used: {error}") from error
        except (BaseError, OSError) as error:
            raise Unavailable(str(error)) from error


def _converted(data: bytes, base: str) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Matrices and alphas by layer, names as in the transformer, whatever convention the file follows."""
    if base not in _FORMATS:
        raise AdapterError(f"{base} takes no tuned models")
    try:
        tensors = safetensors.torch.load(data)
    except (SafetensorError, ValueError) as error:
        raise AdapterError("not a safetensors file") from error
    try:
        converted = getattr(loaders, _FORMATS[base]).lora_state_dict(dict(tensors))
    except (KeyError, ValueError, NotImplementedError) as error:
        raise AdapterError("its names follow no convention known for this base") from error
    matrices: dict[str, Tensor] = {}
    alphas: dict[str, float] = {}
    for key, tensor in (converted | {k: v for k, v in tensors.items() if k.endswith(_ALPHA)}).items():
        name = key.removeprefix("transformer.")
        if name.endswith(_ALPHA):
            alphas[name.removesuffix(_ALPHA)] = float(tensor)
        else:
            matrices[name] = tensor
    return matrices, _declared_alphas(data) | alphas


def _declared_alphas(data: bytes) -> dict[str, float]:
    """What the file's header says of alpha, where diffusers wrote it; under "" the one for all layers."""
    length = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    metadata = header.get("__metadata__", {}).get("lora_adapter_metadata")
    if metadata is None:
        return {}
    declared = {k.removeprefix("transformer."): v for k, v in json.loads(metadata).items()}
    patterns = {str(k): float(v) for k, v in (declared.get("alpha_pattern") or {}).items()}
    return ({"": float(declared["lora_alpha"])} if "lora_alpha" in declared else {}) | patterns


def _layer(name: str, tensors: dict[str, Tensor], alphas: dict[str, float], linears: dict[str, nn.Linear]) -> LowRank:
    linear = linears.get(name)
    if linear is None:
        raise AdapterError(f"the base has no linear layer {name}")
    if name + _DOWN not in tensors or name + _UP not in tensors:
        raise AdapterError(f"half of {name} is missing")
    down, up = tensors[name + _DOWN], tensors[name + _UP]
    rank = down.shape[0]
    if rank == 0 or not (torch.isfinite(down).all() and torch.isfinite(up).all()):
        raise AdapterError(f"{name} is empty, or not all numbers")
    if down.shape != (rank, linear.in_features) or up.shape != (linear.out_features, rank):
        shapes = f"{tuple(up.shape)} x {tuple(down.shape)}"
        raise AdapterError(f"{name} is {shapes}, but the base's layer {linear.out_features} x {linear.in_features}")
    weight = linear.weight
    if not weight.is_meta:
        down, up = (matrix.to(weight.device, weight.dtype) for matrix in (down, up))
    return LowRank(down, up, alphas.get(name, alphas.get("", float(rank))) / rank)
