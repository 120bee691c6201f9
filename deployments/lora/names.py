"""Layers of a base by the names that adapter files give them.

Most names are the base's own. Names of the model's makers, which ComfyUI, kohya and others use, go through diffusers'
converters, but not together with the file's matrices: converters drop tensors, and scale in the file's precision.
Instead they get numbered rows, whose positions in the result tell which rows of a file's layer belong to which layer of
the base. So layers that they drop are noticed, and one method serves every kind of adapter.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import torch
from diffusers.loaders import lora_conversion_utils as conversion
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from deployments.lora.formats import AdapterError, LayerName, flat, parse_name, shorten

Tensors = dict[str, Tensor]

MAX_WIDTH: Final = 2**20
"""Rows or columns of the largest matrix that is accepted."""
_RANK: Final = 3
"""Rank of the numbered matrices, as some converters also split the matrix without rows to share out in three."""
_MAX_BLOCKS: Final = re.compile(r"\d{4,}")
"""Block numbers that are refused, as converters count up to them."""


@dataclass(frozen=True, slots=True)
class LayerRows:
    """A layer of the base, and the rows of the file's layer that belong to it."""

    layer: str
    rows: slice | Tensor

    @property
    def count(self) -> int:
        return self.rows.stop - self.rows.start if isinstance(self.rows, slice) else len(self.rows)


@dataclass(frozen=True, slots=True)
class Converter:
    """A converter of diffusers for one architecture, and the names that it expects."""

    convert: Callable[[Tensors, Any], Tensors] | None = None
    """Function of numbered matrices and the network."""
    template: str = "diffusion_model.{}"
    """Format of a layer's name."""
    spelling: Sequence[tuple[str, str]] = ()
    """Patterns that restore the dots that the converter expects."""
    aliases: Sequence[tuple[str, str]] = ()
    """Patterns of makers' names that differ from the base's in words only."""
    suffixes: tuple[str, str] = ("lora_A.weight", "lora_B.weight")
    width: int = 0
    """The only width of a network that the converter supports; 0 for any."""


def _plain(convert: Callable[[Tensors], Tensors]) -> Callable[[Tensors, Any], Tensors]:
    return lambda tensors, network: convert(tensors)


def _convert_unet(tensors: Tensors, unet: Any) -> Tensors:
    tensors = conversion._maybe_map_sgm_blocks_to_diffusers(tensors, unet.config)
    return conversion._convert_non_diffusers_lora_to_diffusers(tensors)[0]


def _convert_flux(tensors: Tensors, network: Any) -> Tensors:
    xlabs = {name: tensor for name, tensor in tensors.items() if "_processor_" in name}
    kohya = {name: tensor for name, tensor in tensors.items() if name not in xlabs}
    converted = conversion._convert_kohya_flux_lora_to_diffusers(kohya) if kohya else {}
    renamed: Tensors = {}
    for name, tensor in xlabs.items():
        name = re.sub(
            r"lora_unet_(\w+_blocks)_(\d+)_processor_(\w+?)(_lora[12])?\.lora_", r"\1.\2.processor.\3\4.", name
        )
        renamed[name if "_lora" in name else re.sub(r"\.(?=(down|up)\.)", "_lora.", name)] = tensor
    return converted | (conversion._convert_xlabs_flux_lora_to_diffusers(renamed) if renamed else {})


_SD3: Final = (
    (r"^joint_blocks", "transformer_blocks"),
    (r"x_block\.attn(2?)\.proj", r"attn\1.to_out.0"),
    (r"context_block\.attn\.proj", "attn.to_add_out"),
    (r"x_block\.mlp\.fc1", "ff.net.0.proj"),
    (r"x_block\.mlp\.fc2", "ff.net.2"),
    (r"context_block\.mlp\.fc1", "ff_context.net.0.proj"),
    (r"context_block\.mlp\.fc2", "ff_context.net.2"),
    (r"x_block\.adaLN_modulation\.1", "norm1.linear"),
    (r"context_block\.adaLN_modulation\.1", "norm1_context.linear"),
    (r"^x_embedder\.proj", "pos_embed.proj"),
    (r"^([ty])_embedder\.mlp\.0", r"time_text_embed.\1.linear_1"),
    (r"^([ty])_embedder\.mlp\.2", r"time_text_embed.\1.linear_2"),
    (r"\.t\.", ".timestep_embedder."),
    (r"\.y\.", ".text_embedder."),
    (r"^final_layer\.linear", "proj_out"),
    (r"^final_layer\.adaLN_modulation\.1", "norm_out.linear"),
)


def _convert_sd3(tensors: Tensors, network: Any) -> Tensors:
    """Replaces the converter that diffusers lacks."""
    last = f"transformer_blocks.{len(network.transformer_blocks) - 1}.norm1_context"
    converted: Tensors = {}
    for name, tensor in tensors.items():
        name, is_up = _substitute(_SD3, name.removeprefix("diffusion_model.")), "lora_B" in name
        if is_up and name.startswith((last, "norm_out")):
            converted[name] = conversion.swap_scale_shift(tensor)
        elif match := re.search(r"(x|context)_block\.(attn2?)\.qkv", name):
            parts = ("to_q", "to_k", "to_v") if match[1] == "x" else ("add_q_proj", "add_k_proj", "add_v_proj")
            for part, rows in zip(parts, tensor.chunk(3) if is_up else [tensor] * 3, strict=True):
                converted[name.replace(match[0], f"{match[2]}.{part}")] = rows
        else:
            converted[name] = tensor
    return converted


_KOHYA: Final = ("lora_down.weight", "lora_up.weight")
_NUMBERS: Final = ((r"_(?=\d+(_|$))", "."), (r"(?<=\.\d)_|(?<=\.\d\d)_|(?<=\.\d\d\d)_", "."))
_LAST: Final = (r"_(?=(qkv|proj|lin|linear|in_layer|out_layer|qkv_mlp|[qkvo]|[kv]_img|head)$)", ".")
_FLUX: Final = Converter(
    _convert_flux,
    "lora_unet_{}",
    aliases=((r"^(distilled_guidance_layer_layers_\d+)_in_layer", r"\1_linear_1"), (r"_out_layer$", "_linear_2")),
    suffixes=_KOHYA,
    width=3072,
)
_HUNYUAN: Final = Converter(
    _plain(conversion._convert_hunyuan_video_lora_to_diffusers),
    spelling=(
        *_NUMBERS,
        (r"(img|txt)_(mod|mlp)_", r"\1_\2."),
        (r"((?:img|txt)_mlp|blocks\.\d+\.mlp)\.0$", r"\1.fc1"),
        (r"((?:img|txt)_mlp|blocks\.\d+\.mlp)\.2$", r"\1.fc2"),
        (r"_mod\.lin$", "_mod.linear"),
        (r"modulation_lin(ear)?$", "modulation.linear"),
        (r"^txt_in_", "txt_in."),
        (r"token_refiner_", "token_refiner."),
        (r"(time_in|guidance_in|t_embedder)_(?=mlp)", r"\1."),
        (r"_(?=in_layer|out_layer|linear(_[12])?$|fc[12]$|adaLN)", "."),
    ),
    width=3072,
)
_LTX: Final = Converter(
    _plain(conversion._convert_non_diffusers_ltx2_lora_to_diffusers),
    spelling=((r"^((?:audio_)?(?:prompt_)?adaln_single)_", r"\1."),),
)
_CONVERTERS: Final[Mapping[str, Converter]] = {
    "FluxTransformer2DModel": _FLUX,
    "ChromaTransformer2DModel": _FLUX,
    "Flux2Transformer2DModel": Converter(
        _plain(conversion._convert_non_diffusers_flux2_lora_to_diffusers),
        spelling=(*_NUMBERS, _LAST, (r"adaLN_modulation\.1", "adaLN_modulation.1"), (r"^final_layer_", "final_layer.")),
    ),
    "Flux3Transformer2DModel": Converter(
        _plain(conversion._convert_non_diffusers_flux3_lora_to_diffusers),
        spelling=(*_NUMBERS, (r"^(content_mode_blocks)_", r"\1.")),
    ),
    "WanTransformer3DModel": Converter(
        _plain(conversion._convert_non_diffusers_wan_lora_to_diffusers),
        spelling=(*_NUMBERS, (r"img_emb_", "img_emb."), _LAST),
        aliases=(
            (r"_self_attn_norm_", "_attn1_norm_"),
            (r"_cross_attn_norm_k_img$", "_attn2_norm_added_k"),
            (r"_cross_attn_norm_", "_attn2_norm_"),
            (r"^(blocks_\d+)_norm3$", r"\1_norm2"),
            (r"^img_emb_proj_0$", "condition_embedder_image_embedder_norm1"),
            (r"^img_emb_proj_4$", "condition_embedder_image_embedder_norm2"),
        ),
    ),
    "ZImageTransformer2DModel": Converter(
        _plain(conversion._convert_non_diffusers_z_image_lora_to_diffusers),
        "lora_unet_{}",
        aliases=((r"^x_embedder$", "all_x_embedder_2-1"), (r"^final_layer_", "all_final_layer_2-1_")),
        suffixes=_KOHYA,
    ),
    "HunyuanVideoTransformer3DModel": _HUNYUAN,
    "HunyuanVideo15Transformer3DModel": replace(
        _HUNYUAN,
        aliases=(
            (r"^double_blocks_(\d+)_img_attn_([qkv])$", r"transformer_blocks_\1_attn_to_\2"),
            (r"^double_blocks_(\d+)_txt_attn_([qkv])$", r"transformer_blocks_\1_attn_add_\2_proj"),
        ),
    ),
    "LTXVideoTransformer3DModel": _LTX,
    "LTX2VideoTransformer3DModel": _LTX,
    "LTX2TextConnectors": Converter(
        _plain(
            partial(
                conversion._convert_non_diffusers_ltx2_lora_to_diffusers,
                non_diffusers_prefix="text_embedding_projection",
            )
        ),
        "text_embedding_projection.{}",
    ),
    "SD3Transformer2DModel": Converter(
        _convert_sd3,
        spelling=(
            *_NUMBERS,
            (r"_block_", "_block."),
            (r"(attn2?|mlp)_(?=qkv|proj|fc)", r"\1."),
            (r"embedder_", "embedder."),
            (r"^final_layer_", "final_layer."),
        ),
    ),
    "UNet2DConditionModel": Converter(_convert_unet, "lora_unet_{}", suffixes=_KOHYA),
}
_TEXT_ALIASES: Final = ((r"^text_model_", ""), (r"^(?=encoder_layers)", "text_model_"), (r"_to_([qkv])$", r"_\1_proj"))
_OLD_ALIASES: Final = ((r"_processor_", "_"), (r"_to_out$", "_to_out_0"))
"""Patterns of diffusers' own files from 2023."""


class NetworkLayers:
    """The layers of one network that adapters may change."""

    def __init__(self, network: nn.Module) -> None:
        self.modules = {
            name: module
            for name, module in network.named_modules()
            if isinstance(module, nn.Linear) or (isinstance(module, _ConvNd) and module.groups == 1) or is_norm(module)
        }
        self._network = network
        self._by_flat_name = {flat(name): name for name in self.modules}
        self._converter = _CONVERTERS.get(type(network).__name__, Converter())

    def locate(self, sizes: Mapping[str, int]) -> dict[str, list[LayerRows]]:
        """Returns the locations in the base of layers, given by flat names with their numbers of rows. Raises
        AdapterError."""
        locations = {
            name: [LayerRows(layer, slice(0, size))] for name, size in sizes.items() if (layer := self._find(name))
        }
        remaining = [name for name in sizes if name not in locations]
        if remaining:
            try:
                locations |= self._convert(remaining, sizes)
            except MemoryError:
                raise
            except Exception:  # converters raise any type for unknown names
                for name in remaining:  # finds a name that fails by itself
                    try:
                        self._convert([name], sizes)
                    except Exception as error:
                        raise AdapterError(f"the base has no layer {shorten(name)}, or one of another size") from error
                raise AdapterError(f"its layers are not those of the base: {shorten(remaining[0])}") from None
        return locations

    def _find(self, name: str) -> str | None:
        for aliases in ((), self._converter.aliases, _OLD_ALIASES, *((each,) for each in _TEXT_ALIASES)):
            if layer := self._by_flat_name.get(_substitute(aliases, name)):
                return layer
        return None

    def _convert(self, names: Sequence[str], sizes: Mapping[str, int]) -> dict[str, list[LayerRows]]:
        """Raises any error of the converter, and ValueError for names that it drops."""
        converter = self._converter
        if converter.convert is None or any(_MAX_BLOCKS.search(name) for name in names):
            raise ValueError("names of no converter")
        config: Any = self._network.config
        unit = converter.width // (config.num_attention_heads * config.attention_head_dim) if converter.width else 1
        numbered: Tensors = {}
        down, up = converter.suffixes
        for number, name in enumerate(names, 1):
            layer = converter.template.format(_substitute(converter.spelling, name))
            numbered[f"{layer}.{down}"] = torch.full((_RANK, 1), float(number))
            numbered[f"{layer}.{up}"] = torch.arange(1.0, sizes[name] + 1).repeat_interleave(unit)[:, None]
        if len(numbered) != 2 * len(names):
            raise ValueError("two names for one layer")
        return self._locations(converter.convert(numbered, self._network), names, sizes, unit)

    def _locations(
        self, converted: Tensors, names: Sequence[str], sizes: Mapping[str, int], unit: int
    ) -> dict[str, list[LayerRows]]:
        halves: dict[LayerName, Tensors] = defaultdict(dict)
        for key, tensor in converted.items():
            parsed = parse_name(key)
            halves[parsed.layer][parsed.part] = tensor
        locations: dict[str, list[LayerRows]] = defaultdict(list)
        taken: dict[str, list[Tensor]] = defaultdict(list)
        for converted_name, parts in halves.items():
            name, layer = names[int(parts["down"][0, 0]) - 1], self._find(converted_name.name)
            if layer is None:
                raise ValueError("no layer of the base")
            rows = parts["up"][::unit, 0].long() - 1
            first, end = int(rows[0]), int(rows[0]) + len(rows)
            in_order = torch.equal(rows, torch.arange(first, end))
            locations[name].append(LayerRows(layer, slice(first, end) if in_order else rows))
            taken[name].append(rows)
        for name in names:
            if not torch.equal(torch.cat(taken[name]).sort().values, torch.arange(sizes[name])):
                raise ValueError("rows are dropped")
        return dict(locations)


def is_norm(module: nn.Module) -> bool:
    """Returns whether `module` is a normalization whose weight multiplies its output."""
    names = ("RMSNorm", "LayerNorm", "FP32LayerNorm", "GroupNorm")
    return type(module).__name__ in names and getattr(module, "weight", None) is not None


def _substitute(patterns: Iterable[tuple[str, str]], name: str) -> str:
    for pattern, replacement in patterns:
        name = re.sub(pattern, replacement, name)
    return name
