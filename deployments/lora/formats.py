"""LoRA file formats: layer names of diffusers, PEFT, kohya, BFL, ComfyUI and XLabs, and safetensors headers.

Diffusers and PEFT name the transformer's own layers. BFL's names, which ComfyUI and kohya use too, are of other blocks:
some of their layers are several of the transformer's. Kohya writes underscores for dots. So each layer is looked up by
all its names, with underscores, and sizes are those of the base at hand. A file applies as a whole or is refused.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import torch
from torch import Tensor, nn

MOST_BYTES: Final = 8 * 2**20
"""Some tools note every caption of their training in it; those of the tensors take some hundred kilobytes."""
MOST_TENSORS: Final = 20_000
_MAX_NAME_LENGTH: Final = 100


class AdapterError(ValueError):
    """A file is no adapter of this base. Its text says why, fit for the client."""


def read_header(file: BinaryIO) -> dict[str, Any]:
    """What stands in front of the tensors, by their names. Raises AdapterError."""
    length = int.from_bytes(file.read(8), "little")
    if length > MOST_BYTES:
        raise AdapterError(f"not a safetensors file, or its header is longer than {MOST_BYTES // 2**20} MiB")
    try:
        header = json.loads(file.read(length))
    except (ValueError, RecursionError) as error:
        raise AdapterError("not a safetensors file") from error
    if not isinstance(header, dict):
        raise AdapterError("not a safetensors file")
    if len(header) > MOST_TENSORS:
        raise AdapterError(f"it holds more than {MOST_TENSORS} tensors")
    return header


def shorten(name: str) -> str:
    """The name of a tensor or a layer, as far as it can be told."""
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…"


_PREFIXES: Final = (
    "base_model.model.",
    "transformer.",
    "diffusion_model.",
    "model.diffusion_model.",
    "unet.",
    "lora_unet_",
    "lora_transformer_",
)
_MATRIX: Final = re.compile(r"(.+)\.(?:(lora_A|lora_down|down)|(?:lora_B|lora_up|up))(?:\.[^.]+)?\.weight")
_ALPHA: Final = ".alpha"
_BLOCK: Final = re.compile(r"(\w*blocks\.(?:[a-z_]+\.)?\d+)\.")
_TEXT_ENCODER: Final = re.compile(r"lora_te\d?_|text_encoders?(_\d)?\.|te\d?\.")
_OTHERS: Final = {"dora_scale": "DoRA", "lora_magnitude_vector": "DoRA", ".hada_": "LoHa", ".lokr_": "LoKr"}

_QKV: Final = ("attn.to_q", "attn.to_k", "attn.to_v")
_TEXT_QKV: Final = ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj")
_DOUBLE: Final[Sequence[tuple[str, tuple[str, ...]]]] = (
    ("img_attn.qkv", _QKV),
    ("txt_attn.qkv", _TEXT_QKV),
    ("img_attn.proj", ("attn.to_out.0",)),
    ("txt_attn.proj", ("attn.to_add_out",)),
    ("img_mlp.0", ("ff.net.0.proj",)),
    ("img_mlp.2", ("ff.net.2",)),
    ("txt_mlp.0", ("ff_context.net.0.proj",)),
    ("txt_mlp.2", ("ff_context.net.2",)),
    ("img_mlp.0", ("ff.linear_in",)),
    ("img_mlp.2", ("ff.linear_out",)),
    ("txt_mlp.0", ("ff_context.linear_in",)),
    ("txt_mlp.2", ("ff_context.linear_out",)),
    ("img_mod.lin", ("norm1.linear",)),
    ("txt_mod.lin", ("norm1_context.linear",)),
    ("processor.qkv_lora1", _QKV),
    ("processor.qkv_lora2", _TEXT_QKV),
    ("processor.proj_lora1", ("attn.to_out.0",)),
    ("processor.proj_lora2", ("attn.to_add_out",)),
)
_SINGLE: Final[Sequence[tuple[str, tuple[str, ...]]]] = (
    ("linear1", (*_QKV, "proj_mlp")),
    ("linear1", ("attn.to_qkv_mlp_proj",)),
    ("linear2", ("proj_out",)),
    ("linear2", ("attn.to_out",)),
    ("modulation.lin", ("norm.linear",)),
    ("processor.qkv_lora", _QKV),
    ("processor.proj_lora", ("proj_out",)),
    ("q_proj", ("attn.to_q",)),
    ("k_proj", ("attn.to_k",)),
    ("v_proj", ("attn.to_v",)),
    ("attn_out", ("attn.to_out.0",)),
    ("mlp_in", ("ff.linear_in",)),
    ("mlp_out", ("ff.linear_out",)),
)
_OUTSIDE: Final[Mapping[str, str]] = {
    "img_in": "x_embedder",
    "txt_in": "context_embedder",
    "vector_in.in_layer": "time_text_embed.text_embedder.linear_1",
    "vector_in.out_layer": "time_text_embed.text_embedder.linear_2",
    "final_layer.linear": "proj_out",
    "final_layer.adaLN_modulation.1": "norm_out.linear",
    **{f"{name}.lin": f"{name}.linear" for name in ("single_stream_modulation", "double_stream_modulation_img")},
    "double_stream_modulation_txt.lin": "double_stream_modulation_txt.linear",
    **{
        f"{kind}_in.{place}_layer": f"{embed}.{embedder}_embedder.linear_{number}"
        for kind, embedder in (("time", "timestep"), ("guidance", "guidance"))
        for place, number in (("in", 1), ("out", 2))
        for embed in ("time_text_embed",)
    },
}
_SWAPPED: Final = "final_layer_adaLN_modulation_1"
"""Scale and shift stand the other way round there."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """Of one layer: `down` (rank, in) and `up` (out, rank) as in the file, and its alpha where the file has one."""

    down: Tensor
    up: Tensor
    alpha: float | None


def by_layer(tensors: Mapping[str, Tensor], linears: Mapping[str, nn.Linear]) -> dict[str, Matrices]:
    """The matrices of a LoRA file by the names of the base's layers. Raises AdapterError."""
    files: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for key, tensor in tensors.items():
        name, part = _parse_key(key)
        files[name][part] = tensor
    if not any(part != "alpha" for parts in files.values() for part in parts):
        raise AdapterError("not a LoRA of a transformer: it holds no matrices")
    targets, result = _targets(linears), dict[str, Matrices]()
    for name, parts in sorted(files.items()):
        layers = targets.get(_flat(name))
        if layers is None:
            raise AdapterError(f"the base has no linear layer {shorten(name)}")
        if "down" not in parts or "up" not in parts:
            raise AdapterError(f"half of {shorten(name)} is missing")
        for layer, matrices in _split(name, parts, layers, linears):
            if layer in result:
                raise AdapterError(f"it has matrices for {layer} twice")
            result[layer] = matrices
    return result


def _parse_key(key: str) -> tuple[str, str]:
    """A key as the name of a layer, without what stands in front of it, and `down`, `up` or `alpha`."""
    if _TEXT_ENCODER.match(key):
        raise AdapterError(f"it tunes a text encoder ({shorten(key)}): a LoRA of the transformer alone is taken")
    for part, kind in _OTHERS.items():
        if part in key:
            raise AdapterError(f"it is a {kind} ({shorten(key)}): only plain LoRA is taken")
    match = _MATRIX.fullmatch(key)
    if match is None and not key.endswith(_ALPHA):
        raise AdapterError(f"not a LoRA of a transformer: {shorten(key)}")
    name = match[1] if match else key.removesuffix(_ALPHA)
    if name.startswith("sformer_blocks."):  # as some exports have it
        name = f"tran{name}"
    while prefix := next((each for each in _PREFIXES if name.startswith(each)), None):
        name = name.removeprefix(prefix)
    return name, "alpha" if match is None else "down" if match[2] else "up"


def _targets(linears: Mapping[str, nn.Linear]) -> dict[str, tuple[str, ...]]:
    """The layers of the base by every name, with underscores."""
    result: dict[str, tuple[str, ...]] = {_flat(name): (name,) for name in linears}
    for block in {match[1] for name in linears if (match := _BLOCK.match(name))}:
        double = block.startswith("transformer_blocks")
        source = block.replace("single_transformer", "single").replace("transformer", "double")
        for name, parts in _DOUBLE if double else _SINGLE:
            layers = tuple(f"{block}.{part}" for part in parts)
            if all(layer in linears for layer in layers):
                for alias in (block, source, source.replace("mode_blocks", "content_mode_blocks")):
                    result.setdefault(_flat(f"{alias}.{name}"), layers)
    for name, layer in _OUTSIDE.items():
        for each in (layer, layer.replace("time_text_embed", "time_guidance_embed")):
            if each in linears:
                result[_flat(name)] = (each,)
    return result


def _split(
    name: str, parts: Mapping[str, Tensor], layers: tuple[str, ...], linears: Mapping[str, nn.Linear]
) -> Iterator[tuple[str, Matrices]]:
    down, up = (_plain(parts[part]) for part in ("down", "up"))
    alpha = float(parts["alpha"]) if "alpha" in parts else None
    sizes = [linears[layer].out_features for layer in layers]
    inputs = linears[layers[0]].in_features
    if down.ndim != 2 or up.shape != (sum(sizes), len(down)) or down.shape[1] != inputs:
        shapes = f"{tuple(up.shape)} x {tuple(down.shape)}"
        raise AdapterError(f"{shorten(name)} is {shapes}, but the base's layer {sum(sizes)} x {inputs}")
    if _flat(name) == _SWAPPED:
        up = torch.cat(up.chunk(2)[::-1])
    for layer, rows in zip(layers, up.split(sizes), strict=True):
        yield layer, Matrices(down, rows, alpha)


def _plain(matrix: Tensor) -> Tensor:
    """Two axes, also of what was written for a convolution of 1 x 1; eight-bit floats as bfloat16."""
    if matrix.ndim == 4 and matrix.shape[2:] == (1, 1):
        matrix = matrix.flatten(1)
    return matrix.bfloat16() if matrix.is_floating_point() and matrix.element_size() == 1 else matrix


def _flat(name: str) -> str:
    return name.replace(".", "_")
