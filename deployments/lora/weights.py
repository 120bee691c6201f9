"""Adapter weights: reads them, and caches them by bytes for a replica.

Files are read with safetensors, so nothing in them is executed. Every tensor must belong to a layer of the base and fit
it, or the whole file is refused: an adapter that applies in part would look like one that does not work.
"""

from __future__ import annotations

import io
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Final

import safetensors
import safetensors.torch
import torch
from obstore.exceptions import BaseError
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from deployments.backend import JobError, Unavailable
from deployments.contract.job import Adapter
from deployments.contract.objects import ObjectStore
from deployments.lora.deltas import Delta, Difference, Hadamard, Kronecker, LowRank
from deployments.lora.formats import DENOISERS, AdapterError, LayerName, group_by_layer, read_header, shorten
from deployments.lora.names import MAX_WIDTH, LayerRows, NetworkLayers, is_norm
from deployments.lru_cache import ByteCache, CacheStats
from deployments.torch_process import SideStream

Networks = Mapping[str, nn.Module]
"""Networks of a pipeline that adapters may change, by component."""


def find_networks(pipeline: Any, components: Iterable[str]) -> dict[str, nn.Module]:
    """Returns the components of the pipeline among `components`."""
    modules = {name: pipeline.components.get(name) for name in components}
    return {name: module for name, module in modules.items() if isinstance(module, nn.Module)}


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    layers: dict[str, tuple[Delta, ...]]
    """Deltas by component and layer: `transformer.blocks.0.attn1.to_q`."""

    @property
    def rank(self) -> int:
        return max(delta.rank for deltas in self.layers.values() for delta in deltas)

    @property
    def nbytes(self) -> int:
        return sum({id(t): t.nbytes for deltas in self.layers.values() for d in deltas for t in d.tensors}.values())


def read_weights(data: bytes, networks: Networks) -> AdapterWeights:
    """Returns the adapter in a safetensors file, its matrices in the networks' precision and on their devices.

    With networks on the meta device, only checks names and shapes. Raises AdapterError, and torch's errors of a device
    that is full or broken.
    """
    try:
        layers = _read(data, networks)
    except AdapterError:
        raise
    except (AssertionError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        # A hostile or broken file can cause any of these below.
        raise AdapterError("it is damaged, or no LoRA") from error
        # Outside the try block, as errors of the device are not the file's fault.
    return AdapterWeights(_on_device(layers, networks))


def _read(data: bytes, networks: Networks) -> dict[str, tuple[Delta, ...]]:
    metadata = read_header(io.BytesIO(data)).get("__metadata__", {}).get("lora_adapter_metadata") or "{}"
    try:
        tensors = safetensors.torch.load(data)
    except (SafetensorError, ValueError) as error:
        raise AdapterError("not a safetensors file") from error
    files = group_by_layer({key: _check_tensor(key, tensor) for key, tensor in tensors.items()})
    by_component: dict[str, dict[str, dict[str, Tensor]]] = defaultdict(dict)
    for layer, parts in files.items():
        by_component[layer.component][layer.name] = parts
    result: dict[str, tuple[Delta, ...]] = {}
    for component, members in by_component.items():
        targets = _targets(component, files, networks)
        scales = PeftScales.from_metadata(json.loads(metadata), component or targets[0])
        network, *others = (NetworkLayers(networks[target]) for target in targets)
        sizes = {name: _row_count(name, parts) for name, parts in sorted(members.items())}
        for name, locations in network.locate(sizes).items():
            expected = [_shape(network.modules[each.layer])[0] for each in locations]
            if [each.count for each in locations] != expected:
                raise _misfit(name, members[name], network.modules[locations[0].layer], sum(expected))
            for location in locations:
                module = network.modules[location.layer]
                deltas = tuple(_deltas(name, members[name], location, module, scales))
                twins = [each.modules.get(location.layer) for each in others]
                if any(twin is None or _shape(twin) != _shape(module) for twin in twins):
                    raise AdapterError(f"the base's networks differ in {shorten(location.layer)}")
                for target in targets:
                    if result.setdefault(f"{target}.{location.layer}", deltas) is not deltas:
                        raise AdapterError(f"it has matrices for {shorten(location.layer)} twice")
    return result


def _targets(component: str, files: Mapping[LayerName, object], networks: Networks) -> list[str]:
    """Returns the networks that a component's layers are for: both experts, unless the file distinguishes them."""
    if f"{component}_2" in {layer.component for layer in files} or component not in ("", "transformer", "unet"):
        targets = [component]
    else:
        targets = [name for name in DENOISERS if name in networks and name.startswith(component)] or [component]
    for target in targets:
        if target not in networks:
            layer = next(each.name for each in files if each.component == component)
            if target.startswith("text_encoder"):
                raise AdapterError(f"it tunes a text encoder ({shorten(layer)}), which stays as it is in this model")
            raise AdapterError(f"the base has no {target or 'network that takes tuned models'} ({shorten(layer)})")
    return targets


@dataclass(frozen=True, slots=True)
class PeftScales:
    """PEFT's configuration of one network, from the header of files that diffusers wrote."""

    alphas: Mapping[str, float]
    """Alphas by layer, or by the end of a layer's name after a dot; "" has the default."""
    use_rslora: bool

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], component: str) -> PeftScales:
        config = {key.removeprefix(f"{component}."): value for key, value in metadata.items()}
        alphas = {"": float(config["lora_alpha"])} if "lora_alpha" in config else {}
        alphas |= {str(k): float(v) for k, v in (config.get("alpha_pattern") or {}).items()}
        return cls(alphas, bool(config.get("use_rslora")))

    def scale(self, layer: str, rank: int, alpha: Tensor | None) -> float:
        """Returns alpha / rank; alpha / sqrt(rank) for rsLoRA (arXiv:2312.03732)."""
        ends = [layer, *(layer[index + 1 :] for index, letter in enumerate(layer) if letter == "."), ""]
        declared = next((self.alphas[end] for end in ends if end in self.alphas), float(rank))
        scale = (declared if alpha is None else float(alpha)) / (math.sqrt(rank) if self.use_rslora else rank)
        if not math.isfinite(scale):
            raise AdapterError(f"the alpha of {shorten(layer)} is no number")
        return scale


_MAX_DIMENSIONS: Final = 5
"""Dimensions of a 3D convolution's weight. Operations on a tensor with thousands of them take seconds."""


def _check_tensor(key: str, tensor: Tensor) -> Tensor:
    """Returns the tensor, an eight-bit float as bfloat16 and an alpha as float. Raises AdapterError."""
    if tensor.ndim == 0 and not tensor.is_complex():
        tensor = tensor.float()
    is_sound = tensor.is_floating_point() and tensor.numel() and tensor.ndim <= _MAX_DIMENSIONS
    if not is_sound or max(tensor.shape, default=1) > MAX_WIDTH:
        raise AdapterError(f"{shorten(key)} is empty, too large, or not all numbers")
    tensor = tensor.bfloat16() if tensor.element_size() == 1 else tensor
    if not torch.isfinite(tensor).all():
        raise AdapterError(f"{shorten(key)} is not all numbers")
    return tensor


_LORA: Final = ("down", "up")
_LOHA: Final = ("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b")
_LOKR: Final = (("lokr_w1", "lokr_w1_a"), ("lokr_w2", "lokr_w2_a"))


def _row_count(name: str, parts: Mapping[str, Tensor]) -> int:
    counts = {
        len(parts[each]) for each in ("up", "up_bias", "hada_w1_a", "hada_w2_a", "weight", "bias") if each in parts
    }
    if lokr := [parts[each] for pair in _LOKR for each in pair if each in parts]:
        counts.add(math.prod(len(each) for each in lokr))
    if not counts:
        raise AdapterError(f"half of {shorten(name)} is missing")
    if len(counts) > 1:
        raise AdapterError(f"the parts of {shorten(name)} do not fit each other")
    return counts.pop()


def _deltas(
    name: str, parts: Mapping[str, Tensor], location: LayerRows, layer: nn.Module, scales: PeftScales
) -> Iterator[Delta]:
    """Yields the deltas of one layer of the base from the parts of a file's layer. Raises AdapterError."""
    rows = location.rows
    out, *inputs = _shape(layer)
    alpha, left = parts.get("alpha"), set(parts) - {"alpha"}

    def take(*names: str) -> list[Tensor]:
        if not left.issuperset(names):
            raise AdapterError(f"half of {shorten(name)} is missing")
        left.difference_update(names)
        return [parts[each] for each in names]

    if left & {*_LORA, "up_bias"}:
        down, up = take(*_LORA)
        rank = len(down)
        if is_norm(layer) or up.numel() != len(up) * rank or down[0].numel() != math.prod(inputs):
            raise _misfit(name, parts, layer, len(up))
        if rank > max(out, math.prod(inputs)):
            raise AdapterError(f"{shorten(name)} is of rank {rank}, more than the base's layer has rows and columns")
        scale = scales.scale(location.layer, rank, alpha)
        if down.shape[1:] != tuple(inputs):  # matrices for a convolution of 1 x 1, or the other way round
            down = down.reshape(rank, *inputs)
        yield LowRank(down, up.reshape(len(up), rank)[rows], scale=scale)
        if "up_bias" in left:
            yield Difference(bias=take("up_bias")[0].reshape(len(up))[rows], scale=scale)
    if left.intersection(_LOHA):
        first_up, first_down, second_up, second_down = (each.flatten(1) for each in take(*_LOHA))
        fits = first_up.shape[1] == len(first_down) and second_up.shape[1] == len(second_down)
        if is_norm(layer) or not fits or {first_down.shape[1], second_down.shape[1]} != {math.prod(inputs)}:
            raise _misfit(name, parts, layer, len(first_up))
        scale = scales.scale(location.layer, len(first_down), alpha)
        yield Hadamard(first_up[rows], first_down, second_up[rows], second_down, scale=scale)
    if lokr := {each for each in left if each.startswith("lokr_")}:
        factors = [take(full) if full in lokr else take(low, f"{low[:-1]}b") for full, low in _LOKR]
        yield _kronecker(name, factors, location, layer, scales, alpha)
    if "weight" in left:
        weight = take("weight")[0][rows]
        if weight.numel() != out * math.prod(inputs):
            raise _misfit(name, parts, layer, len(weight))
        yield Difference(weight=weight.reshape(out, *inputs))
    if "bias" in left:
        bias = take("bias")[0]
        if bias.ndim != 1:
            raise _misfit(name, parts, layer, len(bias))
        yield Difference(bias=bias[rows])
    if left:
        raise AdapterError(f"half of {shorten(name)} is missing")


def _kronecker(
    name: str,
    factors: list[list[Tensor]],
    location: LayerRows,
    layer: nn.Module,
    scales: PeftScales,
    alpha: Tensor | None,
) -> Kronecker:
    (left, *left_low), (right, *right_low) = factors
    # As in LyCORIS, factors that are not decomposed have no scale.
    rank = len((right_low or left_low)[0]) if right_low or left_low else 0
    scale = scales.scale(location.layer, rank, alpha) if rank else 1.0
    left = left @ left_low[0] if left_low else left
    inner = right_low[0].flatten(1) if right_low else None
    out, *inputs = _shape(layer)
    if isinstance(layer, _ConvNd) and inner is not None:
        right, inner = right @ inner, None
    right = right.reshape(len(right), -1, *inputs[1:])
    columns = left.shape[1] * (right if inner is None else inner).shape[1]
    if not isinstance(location.rows, slice):
        raise AdapterError(f"it is LoKr of {shorten(name)}, whose rows the base has in another order")
    if is_norm(layer) or left.ndim != 2 or columns != inputs[0] or (inner is not None and right.shape[1] != len(inner)):
        raise AdapterError(f"{shorten(name)} does not fit the base's layer, {out} x {math.prod(inputs)}")
    return Kronecker(left, right, inner, location.rows, scale=scale)


def _shape(layer: nn.Module) -> tuple[int, ...]:
    if isinstance(layer, nn.Linear):  # its weight may be packed
        return layer.out_features, layer.in_features
    return tuple(layer.get_parameter("weight").shape)


def _misfit(name: str, parts: Mapping[str, Tensor], layer: nn.Module, rows: int) -> AdapterError:
    shapes = " x ".join(str(tuple(parts[each].shape)) for each in sorted(parts, reverse=True) if each != "alpha")
    columns = math.prod(_shape(layer)[1:])
    return AdapterError(f"{shorten(name)} is {shapes}, but the base's layer {rows} x {columns}")


def _on_device(layers: dict[str, tuple[Delta, ...]], networks: Networks) -> dict[str, tuple[Delta, ...]]:
    """Moves the deltas to their networks' devices, all matrices of a network in one copy: each copy waits for the step
    in progress, and an adapter has hundreds of matrices."""
    groups: dict[tuple[torch.device, torch.dtype], dict[int, Tensor]] = defaultdict(dict)
    for name, deltas in layers.items():
        component, _, layer = name.partition(".")
        weight = networks[component].get_submodule(layer).get_parameter("weight")
        if weight.is_meta:
            return layers
        group = groups[weight.device, _precision(weight, networks[component])]
        group.update((id(tensor), tensor) for delta in deltas for tensor in delta.tensors)
    moved: dict[int, Tensor] = {}
    for (device, dtype), group in groups.items():
        flat = torch.cat([tensor.flatten().to(dtype) for tensor in group.values()])
        if device.type == "cuda":
            flat = flat.pin_memory()
        parts = flat.to(device, non_blocking=True).split([tensor.numel() for tensor in group.values()])
        moved |= {key: part.view_as(tensor) for (key, tensor), part in zip(group.items(), parts, strict=True)}
    placed = {id(delta): delta.map(lambda tensor: moved[id(tensor)]) for deltas in layers.values() for delta in deltas}
    return {name: tuple(placed[id(delta)] for delta in deltas) for name, deltas in layers.items()}


def _precision(weight: Tensor, network: nn.Module) -> torch.dtype:
    """Returns the layer's type of computation: weights of eight bits or fewer are only stored so."""
    for each in (weight, *network.parameters()):
        if each.is_floating_point() and each.element_size() > 1:
            return each.dtype
    return torch.bfloat16


@torch.no_grad()
def fuse(weights: AdapterWeights, networks: Networks, strength: float) -> None:
    """Adds the adapter to the networks' own weights. Raises AdapterError for a bias that a layer lacks."""
    for name, deltas in weights.layers.items():
        component, _, path = name.partition(".")
        layer: Any = networks[component].get_submodule(path)
        for delta in deltas:
            if (change := delta.weight_change(layer)) is not None:
                layer.weight += (change * (delta.scale * strength)).to(layer.weight.dtype)
            elif isinstance(delta, Difference) and delta.bias is not None:
                if layer.bias is None:
                    raise AdapterError(f"{shorten(path)} has no bias")
                layer.bias += (delta.bias * (delta.scale * strength)).to(layer.bias.dtype)


class AdapterCache:
    """The adapters that a replica holds. Thread-safe."""

    def __init__(self, networks: Networks, store: ObjectStore, limit: int) -> None:
        """Keeps up to `limit` bytes of weights, and the latest adapter whatever its size."""
        self._networks = networks
        self._device = next(next(iter(networks.values())).parameters()).device
        self._store = store
        self._cache: ByteCache[str, AdapterWeights] = ByteCache(limit, lambda weights: weights.nbytes, min_entries=1)
        self._lock = Lock()
        self._loading: dict[str, tuple[Lock, int]] = {}
        """Lock of each adapter being loaded, and the number of threads that want it."""

    @property
    def stats(self) -> CacheStats:
        return self._cache.stats

    def clear(self) -> None:
        self._cache.clear()

    def get(self, adapter: Adapter) -> AdapterWeights:
        """Returns the weights, loaded if necessary. Raises JobError for a missing or invalid file, Unavailable."""
        with self._adapter_lock(adapter.id):
            return self._cache.get_or_create(adapter.id, partial(self._load, adapter.key))

    @contextmanager
    def _adapter_lock(self, adapter_id: str) -> Iterator[None]:
        """Loads an adapter once, as its jobs often come together."""
        with self._lock:
            lock, threads = self._loading.get(adapter_id, (Lock(), 0))
            self._loading[adapter_id] = lock, threads + 1
        try:
            with lock:
                yield
        finally:
            with self._lock:
                _, threads = self._loading.pop(adapter_id)
                if threads > 1:
                    self._loading[adapter_id] = lock, threads - 1

    def _load(self, key: str) -> AdapterWeights:
        try:
            data = self._store.get_blocking(key)
            with SideStream(self._device).activate():
                return read_weights(data, self._networks)
        except FileNotFoundError:
            raise JobError("the tuned model is no longer available") from None
        except AdapterError as error:
            raise JobError(f"the tuned model can't be used: {error}") from error
        except (BaseError, OSError) as error:
            raise Unavailable(str(error)) from error
