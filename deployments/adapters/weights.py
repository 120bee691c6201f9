"""The weights of an adapter (LoRA): small matrices that are added to a transformer's linear layers.

A file is read with safetensors, so nothing in it is ever executed. Its names may follow any of the conventions that
diffusers converts; after that every matrix must belong to a linear layer of the base and fit it, or the file is refused
as a whole: an adapter that applies in part would look like one that does not work.
"""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass
from typing import Any

import safetensors
import safetensors.torch
import torch
from diffusers import loaders
from safetensors import SafetensorError
from torch import Tensor, nn

from deployments.adapters.header import AdapterError, read_header, shown

_FORMATS = {
    "FluxTransformer2DModel": "FluxLoraLoaderMixin",
    "Flux2Transformer2DModel": "Flux2LoraLoaderMixin",
    "Flux3Transformer2DModel": "Flux3LoraLoaderMixin",
}
"""Which of diffusers' converters reads adapters of a transformer class."""

_DOWN, _UP, _ALPHA = ".lora_A.weight", ".lora_B.weight", ".alpha"


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
    tensors, alphas, stabilized = _converted(data, type(transformer).__name__)
    names = {key.removesuffix(suffix) for key in tensors for suffix in (_DOWN, _UP) if key.endswith(suffix)}
    strange = [key for key in tensors if not key.endswith((_DOWN, _UP))]
    if strange or not names:
        raise AdapterError(f"not a LoRA of a transformer: {shown(strange[0]) if strange else 'it holds no matrices'}")
    linears = {name: module for name, module in transformer.named_modules() if isinstance(module, nn.Linear)}
    return {name: _layer(name, tensors, alphas, linears, stabilized) for name in sorted(names)}


def _converted(data: bytes, base: str) -> tuple[dict[str, Tensor], dict[str, float], bool]:
    """Matrices and alphas by layer, names as in the transformer, whatever convention the file follows; and whether
    it is an rsLoRA."""
    if base not in _FORMATS:
        raise AdapterError(f"{base} takes no tuned models")
    header = read_header(io.BytesIO(data))
    try:
        tensors = safetensors.torch.load(data)
    except (SafetensorError, ValueError) as error:
        raise AdapterError("not a safetensors file") from error
    try:
        converted = getattr(loaders, _FORMATS[base]).lora_state_dict(dict(tensors))
    except (KeyError, ValueError, NotImplementedError) as error:  # the last is how diffusers refuses names
        raise AdapterError("its names follow no convention known for this base") from error
    matrices: dict[str, Tensor] = {}
    alphas: dict[str, float] = {}
    for key, tensor in (converted | {k: v for k, v in tensors.items() if k.endswith(_ALPHA)}).items():
        name = key.removeprefix("transformer.")
        if name.endswith(_ALPHA):
            alphas[name.removesuffix(_ALPHA)] = float(tensor)
        else:
            matrices[name] = tensor
    declared = _declared_config(header)
    return matrices, _declared_alphas(declared) | alphas, bool(declared.get("use_rslora"))


def _declared_config(header: dict[str, Any]) -> dict[str, Any]:
    """PEFT's configuration in the file's header, where diffusers wrote one."""
    metadata = header.get("__metadata__", {}).get("lora_adapter_metadata") or "{}"
    return {k.removeprefix("transformer."): v for k, v in json.loads(metadata).items()}


def _declared_alphas(config: dict[str, Any]) -> dict[str, float]:
    """Alphas by layer, or by the end of layers' names; under "" the one for all layers."""
    patterns = {str(k): float(v) for k, v in (config.get("alpha_pattern") or {}).items()}
    return ({"": float(config["lora_alpha"])} if "lora_alpha" in config else {}) | patterns


def _layer(
    name: str, tensors: dict[str, Tensor], alphas: dict[str, float], linears: dict[str, nn.Linear], stabilized: bool
) -> LowRank:
    linear = linears.get(name)
    if linear is None:
        raise AdapterError(f"the base has no linear layer {shown(name)}")
    if name + _DOWN not in tensors or name + _UP not in tensors:
        raise AdapterError(f"half of {name} is missing")
    down, up = tensors[name + _DOWN], tensors[name + _UP]
    rank = down.shape[0]
    if rank > max(linear.in_features, linear.out_features):
        raise AdapterError(f"{name} is of rank {rank}, more than the base's layer has rows and columns")
    alpha = _alpha(name, alphas, float(rank))
    numbers = down.is_floating_point() and up.is_floating_point() and math.isfinite(alpha)
    if rank == 0 or not (numbers and torch.isfinite(down).all() and torch.isfinite(up).all()):
        raise AdapterError(f"{name} is empty, or not all numbers")
    if down.shape != (rank, linear.in_features) or up.shape != (linear.out_features, rank):
        shapes = f"{tuple(up.shape)} x {tuple(down.shape)}"
        raise AdapterError(f"{name} is {shapes}, but the base's layer {linear.out_features} x {linear.in_features}")
    return LowRank(down, up, alpha / (math.sqrt(rank) if stabilized else rank))


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
