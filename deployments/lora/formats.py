"""LoRA file formats: safetensors headers, and tensor names of diffusers, PEFT, kohya, ComfyUI, LyCORIS and XLabs.

A name consists of a prefix for the network, a layer and a part. Kohya writes underscores for dots, so layers are
compared with underscores. `names.py` maps them to layers of the base.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

if TYPE_CHECKING:
    from torch import Tensor

MAX_HEADER_BYTES: Final = 8 * 2**20
"""Headers take some hundred kilobytes for tensors, and more where tools add the captions of the training."""
MAX_TENSORS: Final = 20_000
_MAX_NAME_LENGTH: Final = 100


class AdapterError(ValueError):
    """A file is not an adapter for this base. The text is shown to the client."""


def read_header(file: BinaryIO) -> dict[str, Any]:
    """Returns the header: descriptions of tensors by name. Raises AdapterError."""
    length = int.from_bytes(file.read(8), "little")
    if length > MAX_HEADER_BYTES:
        raise AdapterError(f"not a safetensors file, or its header is longer than {MAX_HEADER_BYTES // 2**20} MiB")
    try:
        header = json.loads(file.read(length))
    except (ValueError, RecursionError) as error:
        raise AdapterError("not a safetensors file") from error
    if not isinstance(header, dict):
        raise AdapterError("not a safetensors file")
    if len(header) > MAX_TENSORS:
        raise AdapterError(f"it holds more than {MAX_TENSORS} tensors")
    return header


def shorten(name: str) -> str:
    """Truncates the name of a tensor or layer for a message."""
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…"


DENOISERS: Final = ("transformer", "transformer_2", "unet", "unet_2")
"""Components that take steps. A model of two experts has one for each half of the steps."""
ENCODERS: Final = ("text_encoder", "text_encoder_2", "connectors")
"""Components that run before the first step, and that published adapters change."""

_DENOISER: Final = ""
_PREFIXES: Final[Mapping[str, str | None]] = {
    "base_model.model.": None,
    "model.diffusion_model.": _DENOISER,
    "diffusion_model.": _DENOISER,
    "lora_unet_": _DENOISER,
    "lora_transformer_": _DENOISER,
    "lycoris_": None,
    "lora_te_": "text_encoder",
    "lora_te1_": "text_encoder",
    "lora_te2_": "text_encoder_2",
    "lora_te3_": "text_encoder_3",
    "text_encoders.clip_l.transformer.": "text_encoder",
    "text_encoders.clip_g.transformer.": "text_encoder_2",
    "text_encoders.": "text_encoder_3",
    "text_embedding_projection.": "connectors",
    **{f"{name}.": name for name in (*DENOISERS, *ENCODERS, "text_encoder_3")},
}
"""Component by prefix. None: a further prefix may follow. No base lets adapters change `text_encoder_3`."""

_END: Final = r"(?:\.(?!lora)[^.]+)?\.weight"
_PARTS: Final[Mapping[str, re.Pattern[str]]] = {
    part: re.compile(f"(.+?){suffix}")
    for part, suffix in {
        "down": rf"(?:\.lora_A|[._]lora[._]down|\.lora_linear_layer\.down|\.down){_END}",
        "up": rf"(?:\.lora_B|[._]lora[._]up|\.lora_linear_layer\.up|\.up){_END}",
        "up_bias": r"\.lora_B(?:\.[^.]+)?\.bias",
        "alpha": r"\.alpha",
        "weight": r"\.(?:diff|w_norm)",
        "bias": r"\.(?:diff_b|b_norm)",
        **{name: rf"\.{name}" for name in ("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b")},
        **{name: rf"\.{name}" for name in ("lokr_w1", "lokr_w1_a", "lokr_w1_b", "lokr_w2", "lokr_w2_a", "lokr_w2_b")},
    }.items()
}
_REFUSED: Final = {
    "dora_scale": "DoRA",
    "lora_magnitude_vector": "DoRA",
    "lora_mid": "LoRA with a middle matrix (Tucker)",
    "hada_t": "LoHa with a core tensor (Tucker)",
    "lokr_t": "LoKr with a core tensor (Tucker)",
    "oft_": "OFT",
    "diff_m": "a difference of modulations",
    "bundle_emb": "a textual inversion",
}


@dataclass(frozen=True, slots=True)
class LayerName:
    """A layer as named in the file, with underscores."""

    component: str
    """Component of the pipeline; empty for the denoiser, or if the name has none."""
    name: str


@dataclass(frozen=True, slots=True)
class TensorName:
    layer: LayerName
    part: str


def parse_name(key: str) -> TensorName:
    """Raises AdapterError."""
    for mark, method in _REFUSED.items():
        if mark in key:
            raise AdapterError(f"it is {method} ({shorten(key)}), which is not supported")
    for part, pattern in _PARTS.items():
        if match := pattern.fullmatch(key):
            return TensorName(_parse_layer(match[1]), part)
    raise AdapterError(f"not a LoRA of a transformer or a UNet: {shorten(key)}")


def _parse_layer(name: str) -> LayerName:
    component = _DENOISER
    while prefix := next((each for each in _PREFIXES if name.startswith(each)), None):
        name = name.removeprefix(prefix)
        if (named := _PREFIXES[prefix]) is not None:
            component = named or component
            if component != _DENOISER:
                break
    if name.startswith("sformer_blocks."):  # some exports cut the name
        name = f"tran{name}"
    return LayerName(component, flat(name))


def group_by_layer(tensors: Mapping[str, Tensor]) -> dict[LayerName, dict[str, Tensor]]:
    """Returns the parts of each layer. Raises AdapterError."""
    layers: dict[LayerName, dict[str, Tensor]] = defaultdict(dict)
    for key, tensor in tensors.items():
        parsed = parse_name(key)
        if parsed.part in layers[parsed.layer]:
            raise AdapterError(f"it has matrices for {shorten(parsed.layer.name)} twice")
        layers[parsed.layer][parsed.part] = tensor
    if not any(parts.keys() - {"alpha"} for parts in layers.values()):
        raise AdapterError("not a LoRA: it holds no matrices")
    return layers


def find_components(keys: Iterable[str]) -> set[str]:
    """Returns the components in the names of tensors. Raises AdapterError."""
    return {parse_name(key).layer.component for key in keys}


def flat(name: str) -> str:
    return name.replace(".", "_")
