"""Every naming convention of LoRA matrices gives the same layers, on every base."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from support.adapters import adapter_file, outline_of
from torch import Tensor, nn

from deployments.lora.deltas import LowRank
from deployments.lora.weights import read_weights

QKV = [f"transformer_blocks.0.attn.to_{part}" for part in "qkv"]
ADDED_QKV = [f"transformer_blocks.0.attn.add_{part}_proj" for part in "qkv"]
SINGLE = "single_transformer_blocks.0"
SINGLE_QKV_MLP = [*(f"{SINGLE}.attn.to_{part}" for part in "qkv"), f"{SINGLE}.proj_mlp"]
REFINER = "context_embedder.token_refiner.refiner_blocks.0"
DOWN = "down_blocks.1.attentions.0"
LAYERS = {
    "bundled/flux": {
        "double_blocks.0.img_attn.qkv": QKV,
        "double_blocks.0.txt_mlp.2": ["transformer_blocks.0.ff_context.net.2"],
        "single_blocks.0.linear1": SINGLE_QKV_MLP,
        "single_blocks.0.modulation.lin": [f"{SINGLE}.norm.linear"],
        "time_in.out_layer": ["time_text_embed.timestep_embedder.linear_2"],
    },
    "bundled/flux2klein": {
        "double_blocks.0.img_attn.qkv": QKV,
        "double_blocks.0.txt_mlp.2": ["transformer_blocks.0.ff_context.linear_out"],
        "single_blocks.0.linear1": [f"{SINGLE}.attn.to_qkv_mlp_proj"],
        "double_stream_modulation_img.lin": ["double_stream_modulation_img.linear"],
        "time_in.in_layer": ["time_guidance_embed.timestep_embedder.linear_1"],
    },
    "bundled/flux3": {
        "content_mode_blocks.image.0.q_proj": ["mode_blocks.image.0.attn.to_q"],
        "single_blocks.0.mlp_in": [f"{SINGLE}.ff.linear_in"],
    },
    "chroma": {
        "double_blocks.0.img_attn.qkv": QKV,
        "single_blocks.0.linear1": SINGLE_QKV_MLP,
        "distilled_guidance_layer.layers.0.in_layer": ["distilled_guidance_layer.layers.0.linear_1"],
    },
    "qwen-image": {name: [name] for name in ("transformer_blocks.0.attn.add_q_proj", "transformer_blocks.0.img_mod.1")},
    "z-image": {
        "layers.0.attention.qkv": [f"layers.0.attention.to_{part}" for part in "qkv"],
        "context_refiner.0.attention.out": ["context_refiner.0.attention.to_out.0"],
        "layers.0.feed_forward.w1": ["layers.0.feed_forward.w1"],
        "x_embedder": ["all_x_embedder.2-1"],
    },
    "wan-t2v": {
        "blocks.0.self_attn.q": ["blocks.0.attn1.to_q"],
        "blocks.1.cross_attn.o": ["blocks.1.attn2.to_out.0"],
        "blocks.1.ffn.2": ["blocks.1.ffn.net.2"],
        "time_projection.1": ["condition_embedder.time_proj"],
        "text_embedding.0": ["condition_embedder.text_embedder.linear_1"],
        "head.head": ["proj_out"],
    },
    "sd3": {
        "joint_blocks.0.x_block.attn.qkv": QKV,
        "joint_blocks.0.x_block.attn2.qkv": [name.replace("attn", "attn2") for name in QKV],
        "joint_blocks.0.context_block.attn.qkv": ADDED_QKV,
        "joint_blocks.1.x_block.mlp.fc2": ["transformer_blocks.1.ff.net.2"],
        "joint_blocks.0.context_block.adaLN_modulation.1": ["transformer_blocks.0.norm1_context.linear"],
        "y_embedder.mlp.2": ["time_text_embed.text_embedder.linear_2"],
    },
    "sdxl": {
        "input_blocks.3.1.transformer_blocks.0.attn1.to_out.0": [f"{DOWN}.transformer_blocks.0.attn1.to_out.0"],
        "input_blocks.3.1.proj_in": [f"{DOWN}.proj_in"],
        "middle_block.1.transformer_blocks.0.ff.net.0.proj": [
            "mid_block.attentions.0.transformer_blocks.0.ff.net.0.proj"
        ],
        "output_blocks.1.1.transformer_blocks.0.attn2.to_k": [
            "up_blocks.0.attentions.1.transformer_blocks.0.attn2.to_k"
        ],
        "input_blocks.1.0.emb_layers.1": ["down_blocks.0.resnets.0.time_emb_proj"],
    },
    "hunyuan-video": {
        "double_blocks.0.img_attn_q": QKV[:1],
        "double_blocks.0.txt_attn_v": ADDED_QKV[2:],
        "double_blocks.0.txt_mlp.fc2": ["transformer_blocks.0.ff_context.net.2"],
    },
    "hunyuan-video-1.0": {
        "double_blocks.0.img_attn_qkv": QKV,
        "double_blocks.0.txt_attn_qkv": ADDED_QKV,
        "double_blocks.0.img_mlp.fc1": ["transformer_blocks.0.ff.net.0.proj"],
        "double_blocks.0.txt_mod.linear": ["transformer_blocks.0.norm1_context.linear"],
        "single_blocks.0.linear1": SINGLE_QKV_MLP,
        "txt_in.individual_token_refiner.blocks.0.self_attn_qkv": [f"{REFINER}.attn.to_{part}" for part in "qkv"],
        "txt_in.t_embedder.mlp.2": ["context_embedder.time_text_embed.timestep_embedder.linear_2"],
        "vector_in.in_layer": ["time_text_embed.text_embedder.linear_1"],
    },
    "ltx": {"transformer_blocks.0.attn1.to_q": ["transformer_blocks.0.attn1.to_q"], "patchify_proj": ["proj_in"]},
    "ltx2": {
        "transformer_blocks.0.audio_attn1.to_q": ["transformer_blocks.0.audio_attn1.to_q"],
        "audio_patchify_proj": ["audio_proj_in"],
        "adaln_single.linear": ["time_embed.linear"],
    },
}
"""The layers of the base by the names that a checkpoint's makers give them, by checkpoint."""
outline = cache(outline_of)

pytestmark = pytest.mark.filterwarnings("ignore:`FluxPosEmbed` is deprecated:FutureWarning")

Pair = tuple[Tensor, Tensor]
Convention = Callable[[str, Tensor, Tensor], dict[str, Tensor]]


def make_convention(
    template: str, down: str = "lora_A.weight", up: str = "lora_B.weight", *, flat: bool = False
) -> Convention:
    def write(name: str, first: Tensor, second: Tensor) -> dict[str, Tensor]:
        place = template.format(name.replace(".", "_") if flat else name)
        return {f"{place}.{down}": first.clone(), f"{place}.{up}": second.clone()}

    return write


def with_alpha(name: str, first: Tensor, second: Tensor) -> dict[str, Tensor]:
    place = f"lora_unet_{name.replace('.', '_')}"
    files = {f"{place}.lora_down.weight": 2 * first, f"{place}.lora_up.weight": second}
    return files | {f"{place}.alpha": torch.tensor(len(first)) / 2}


KOHYA = ("lora_down.weight", "lora_up.weight")
MAKERS_CONVENTIONS = {
    "ComfyUI, ai-toolkit, diffusion-pipe": make_convention("diffusion_model.{}"),
    "ComfyUI, down and up": make_convention("diffusion_model.{}", *KOHYA),
    "kohya": make_convention("lora_unet_{}", *KOHYA, flat=True),
    "kohya, musubi-tuner, with alpha": with_alpha,
    "PEFT": make_convention("base_model.model.{}"),
}
DIFFUSERS_CONVENTIONS = {
    "diffusers": make_convention("COMPONENT.{}"),
    "diffusers, down and up": make_convention("COMPONENT.{}", *KOHYA),
    "PEFT, adapter named": make_convention("base_model.model.{}", "lora_A.default.weight", "lora_B.default.weight"),
    "kohya, OneTrainer": make_convention("lora_transformer_{}", *KOHYA, flat=True),
    "bare": make_convention("{}"),
}


def draw_pairs(name: str, network: nn.Module) -> Iterator[tuple[str, list[str], Pair]]:
    """Yields the makers' layers: the name, the base's layers, and matrices for all of them together."""
    draw = torch.Generator().manual_seed(0)
    for source, layers in LAYERS[name].items():
        linears = [network.get_submodule(layer) for layer in layers]
        sizes = [linear.out_features for linear in linears if isinstance(linear, nn.Linear)]
        inputs = int(linears[0].get_parameter("weight").shape[1])
        yield source, layers, (torch.randn(3, inputs, generator=draw), torch.randn(sum(sizes), 3, generator=draw))


def split_rows(network: nn.Module, layers: list[str], up: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yields each layer with its rows of the upper matrix."""
    sizes = [len(network.get_submodule(layer).get_parameter("weight")) for layer in layers]
    return zip(layers, up.split(sizes), strict=True)


def write_tensors(name: str, convention: str, component: str, network: nn.Module, mark: str = "") -> dict[str, Tensor]:
    """Returns the tensors of a file with the makers' layers whose names contain `mark`."""
    tensors: dict[str, Tensor] = {}
    for source, layers, (down, up) in draw_pairs(name, network):
        if mark in source and convention in MAKERS_CONVENTIONS:
            tensors |= MAKERS_CONVENTIONS[convention](source, down, up)
        elif mark in source:
            for layer, rows in split_rows(network, layers, up):
                written = DIFFUSERS_CONVENTIONS[convention](layer, down, rows)
                tensors |= {key.replace("COMPONENT", component): each for key, each in written.items()}
    return tensors


@pytest.mark.parametrize("convention", [*MAKERS_CONVENTIONS, *DIFFUSERS_CONVENTIONS])
@pytest.mark.parametrize("name", LAYERS)
def test_every_convention_gives_the_same_layers(name: str, convention: str, folder: Path) -> None:
    networks = outline(name, folder)
    component, network = next(iter(networks.items()))
    weights = read_weights(adapter_file(write_tensors(name, convention, component, network)), networks)
    expected = {
        f"{each}.{layer}": rows @ down
        for _, layers, (down, up) in draw_pairs(name, network)
        for layer, rows in split_rows(network, layers, up)
        for each in networks
    }
    assert weights.layers.keys() == expected.keys()
    for layer, effect in expected.items():
        [delta] = weights.layers[layer]
        assert isinstance(delta, LowRank)
        torch.testing.assert_close(delta.scale * delta.up @ delta.down, effect)


def test_xlabs_names_are_layers_of_flux(folder: Path) -> None:
    layers = {"double_blocks.0.processor.qkv_lora1": 96, "single_blocks.0.processor.proj_lora": 32}
    layers |= {"double_blocks.0.processor.proj_lora2": 32, "single_blocks.0.processor.qkv_lora": 96}
    inputs = {"single_blocks.0.processor.proj_lora": 160}
    tensors = {f"{layer}.down.weight": torch.ones(2, inputs.get(layer, 32)) for layer in layers}
    tensors |= {f"{layer}.up.weight": torch.ones(rows, 2) for layer, rows in layers.items()}
    read = read_weights(adapter_file(tensors), outline_of("flux-schnell", folder)).layers
    names = [*QKV, "transformer_blocks.0.attn.to_add_out", *SINGLE_QKV_MLP[:3], f"{SINGLE}.proj_out"]
    assert read.keys() == {f"transformer.{name}" for name in names}


SDXL_KOHYA = {
    "lora_unet_input_blocks_3_1_transformer_blocks_0_attn1_to_out_0": (16, 16),
    "lora_unet_input_blocks_1_0_in_layers_2": (8, 8, 3, 3),
    "lora_unet_input_blocks_3_0_skip_connection": (16, 8, 1, 1),
    "lora_unet_input_blocks_2_0_op": (8, 8, 3, 3),
    "lora_te1_text_model_encoder_layers_0_self_attn_q_proj": (16, 16),
    "lora_te1_text_model_encoder_layers_0_self_attn_out_proj": (16, 16),
    "lora_te2_text_model_encoder_layers_1_mlp_fc1": (32, 16),
    "lora_te2_text_model_encoder_layers_1_self_attn_out_proj": (16, 16),
}
STOCK = {
    "Wan by ComfyUI": ("wan-t2v", "ComfyUI, ai-toolkit, diffusion-pipe", ""),
    "Wan by diffusers": ("wan-t2v", "diffusers", ""),
    "Z-Image by kohya": ("z-image", "kohya, musubi-tuner, with alpha", "layers"),
    "Qwen-Image by ComfyUI": ("qwen-image", "ComfyUI, down and up", ""),
    "Qwen-Image by musubi-tuner": ("qwen-image", "kohya, musubi-tuner, with alpha", "attn"),
    "LTX-2 by ComfyUI": ("ltx2", "ComfyUI, ai-toolkit, diffusion-pipe", ""),
    "Chroma by kohya": ("chroma", "kohya, musubi-tuner, with alpha", "double"),
    "SDXL by kohya": ("sdxl", "", ""),
}
"""Files that stock diffusers accepts: the base, the convention, and a part of the adapted layers' names."""


@torch.inference_mode()
@pytest.mark.parametrize("case", STOCK)
def test_adapted_layers_equal_stock_diffusers(case: str, folder: Path) -> None:
    name, convention, mark = STOCK[case]
    outlines = outline(name, folder, encoders=True)
    if name == "sdxl":
        tensors = {f"{layer}.alpha": torch.tensor(2.0) for layer in SDXL_KOHYA}
        for layer, (out, *inputs) in SDXL_KOHYA.items():
            tensors[f"{layer}.lora_down.weight"] = torch.randn(3, *inputs)
            tensors[f"{layer}.lora_up.weight"] = torch.randn(out, 3, *(1 for _ in inputs[1:]))
    else:
        tensors = write_tensors(name, convention, "transformer", outlines["transformer"], mark)
    pipeline: Any = DiffusionPipeline.from_pretrained(folder / name)
    networks = {each: getattr(pipeline, each) for each in outlines}
    ours = read_weights(adapter_file(tensors), networks).layers
    pipeline.load_lora_weights(dict(tensors))
    tuned = {
        f"{each}.{layer}": module
        for each, network in networks.items()
        for layer, module in network.named_modules()
        if hasattr(module, "lora_A") and each != "transformer_2"  # stock diffusers leaves it as it is
    }
    assert tuned.keys() == {each for each in ours if not each.startswith("transformer_2.")}
    for layer, module in tuned.items():
        weight = module.base_layer.weight
        x = torch.randn(2, weight.shape[1], *((5, 5) if weight.ndim == 4 else ()))
        [delta] = ours[layer]
        torch.testing.assert_close(module.base_layer(x) + delta(module.base_layer, x) * delta.scale, module(x))
