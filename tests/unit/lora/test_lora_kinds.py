"""Kinds of adapters beside plain LoRA, the networks that they change, and unsupported kinds."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.transformers.transformer_wan import WanTransformer3DModel
from support.adapters import adapter_file, outline_of
from torch import Tensor, nn

from deployments.lora.deltas import LowRank
from deployments.lora.formats import AdapterError
from deployments.lora.segments import AdaptedLayers, AppliedAdapter
from deployments.lora.weights import read_weights

pytestmark = pytest.mark.filterwarnings("ignore:`FluxPosEmbed` is deprecated:FutureWarning")

outline = cache(outline_of)
Q = "diffusion_model.layers.0.attention.to_q"
QKV = "diffusion_model.layers.0.attention.qkv"


def loha(layer: str, rows: int) -> tuple[dict[str, Tensor], Tensor]:
    """Returns a file, and the weight that it adds. LyCORIS multiplies by alpha / rank."""
    parts = [torch.randn(*shape) for shape in ((rows, 2), (2, 32)) * 2]
    file = {f"{layer}.hada_w{n}_{half}": parts[2 * n - 2 + (half == "b")] for n in (1, 2) for half in "ab"}
    return file | {f"{layer}.alpha": torch.tensor(1)}, (parts[0] @ parts[1]) * (parts[2] @ parts[3]) / 2


def lokr(layer: str, rows: int, *, low: bool = False) -> tuple[dict[str, Tensor], Tensor]:
    left, right = torch.randn(rows // 8, 4), torch.randn(8, 8)
    file = {f"{layer}.lokr_w1": left, f"{layer}.lokr_w2": right, f"{layer}.alpha": torch.tensor(1.0)}
    if not low:
        return file, torch.kron(left, right)
    first, second = torch.randn(8, 2), torch.randn(2, 8)
    del file[f"{layer}.lokr_w2"]
    factors = {f"{layer}.lokr_w2_a": first, f"{layer}.lokr_w2_b": second}
    return file | factors, torch.kron(left, first @ second) / 2


@pytest.mark.parametrize("layer", [Q, QKV])
@pytest.mark.parametrize("kind", ["loha", "lokr", "lokr, low rank", "diff"])
def test_other_kinds_add_their_weight(layer: str, kind: str, folder: Path) -> None:
    rows = 96 if layer == QKV else 32
    file, weight = {
        "loha": lambda: loha(layer, rows),
        "lokr": lambda: lokr(layer, rows),
        "lokr, low rank": lambda: lokr(layer, rows, low=True),
        "diff": lambda: ({f"{layer}.diff": (weight := torch.randn(rows, 32))}, weight),
    }[kind]()
    networks, x = outline("z-image", folder), torch.randn(5, 32)
    layers = read_weights(adapter_file(file), networks).layers
    parts = [delta(nn.Linear(32, 32), x) * delta.scale for [delta] in layers.values()]
    assert len(layers) == rows // 32
    torch.testing.assert_close(torch.cat(parts, 1), x @ weight.T, rtol=1e-4, atol=1e-4)


def test_lokr_of_a_convolution_is_a_kronecker_product(folder: Path) -> None:
    left, right, x = torch.randn(2, 4), torch.randn(4, 2, 3, 3), torch.randn(2, 8, 5, 5)
    layer = "lora_unet_down_blocks_0_resnets_0_conv1"
    networks = outline("sdxl", folder)
    [[delta]] = read_weights(
        adapter_file({f"{layer}.lokr_w1": left, f"{layer}.lokr_w2": right}), networks
    ).layers.values()
    weight = torch.kron(left[..., None, None], right)
    expected = torch.nn.functional.conv2d(x, weight, padding=1)
    torch.testing.assert_close(delta(nn.Conv2d(8, 8, 3, padding=1), x), expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_differences_of_norms_and_biases_equal_merged_weights(folder: Path) -> None:
    """Distillations of Wan by lightx2v have them."""
    outline("wan-t2v", folder)
    network: Any = WanTransformer3DModel.from_pretrained(folder / "wan-t2v", subfolder="transformer")
    merged, weights = copy.deepcopy(network), dict[str, Tensor]()
    block = "diffusion_model.blocks.0"
    names = {
        f"{block}.self_attn.q.diff_b": "blocks.0.attn1.to_q.bias",
        f"{block}.self_attn.norm_q.diff": "blocks.0.attn1.norm_q.weight",
        f"{block}.norm3.diff": "blocks.0.norm2.weight",
        f"{block}.norm3.diff_b": "blocks.0.norm2.bias",
        "diffusion_model.patch_embedding.diff": "patch_embedding.weight",
        "diffusion_model.patch_embedding.diff_b": "patch_embedding.bias",
        "diffusion_model.head.head.diff": "proj_out.weight",
        "diffusion_model.time_projection.1.diff_b": "condition_embedder.time_proj.bias",
    }
    for key, parameter in names.items():
        weights[key] = torch.randn_like(merged.get_parameter(parameter))
        merged.get_parameter(parameter).add_(weights[key], alpha=0.5)
    down, up = torch.randn(2, 32), torch.randn(32, 2)
    weights |= {f"{block}.self_attn.q.lora_down.weight": down, f"{block}.self_attn.q.lora_up.weight": up}
    merged.blocks[0].attn1.to_q.weight.add_(up @ down, alpha=0.5)
    networks = {"transformer": network}
    layers = read_weights(adapter_file(weights), networks).layers
    inputs = torch.randn(2, 4, 2, 4, 4), torch.tensor([3.0, 5.0]), torch.randn(2, 6, 32)
    with AdaptedLayers(networks).applied_to_all(AppliedAdapter(layers, 0.5)):
        actual = network(*inputs, return_dict=False)[0]
    torch.testing.assert_close(actual, merged(*inputs, return_dict=False)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("prefixes", "experts"),
    [
        (("diffusion_model",), {"transformer", "transformer_2"}),
        (("transformer",), {"transformer", "transformer_2"}),
        (("transformer_2",), {"transformer_2"}),
        (("transformer", "transformer_2"), {"transformer", "transformer_2"}),
    ],
)
def test_adapter_changes_both_experts_unless_it_names_one(
    prefixes: tuple[str, ...], experts: set[str], folder: Path
) -> None:
    name = {"diffusion_model": "blocks.0.self_attn.q"}.get(prefixes[0], "blocks.0.attn1.to_q")
    tensors = {
        f"{prefix}.{name}.lora_{half}.weight": torch.full(shape, float(number))
        for number, prefix in enumerate(prefixes)
        for half, shape in (("A", (2, 32)), ("B", (32, 2)))
    }
    layers = read_weights(adapter_file(tensors), outline("wan-t2v", folder)).layers
    assert {layer.partition(".")[0] for layer in layers} == experts
    assert len({id(deltas) for deltas in layers.values()}) == len(prefixes)


def lora(layer: str, out: int = 32, inputs: int = 32) -> dict[str, Tensor]:
    return {f"{layer}.lora_down.weight": torch.ones(2, inputs), f"{layer}.lora_up.weight": torch.ones(out, 2)}


TEXT = lora("lora_te1_text_model_encoder_layers_0_mlp_fc1")
WAN_Q = "diffusion_model.blocks.0.self_attn.q"


@pytest.mark.parametrize(
    ("name", "tensors", "message"),
    [
        ("z-image", lora(Q) | {f"{Q}.dora_scale": torch.ones(32, 1)}, "it is DoRA"),
        ("z-image", {f"{Q}.lora_magnitude_vector": torch.ones(32)}, "it is DoRA"),
        ("z-image", {f"{Q}.oft_blocks": torch.ones(4, 8, 8)}, "it is OFT"),
        ("z-image", lora(Q) | {f"{Q}.lora_mid.weight": torch.ones(2, 2, 3, 3)}, "middle matrix"),
        ("z-image", loha(Q, 32)[0] | {f"{Q}.hada_t1": torch.ones(2, 2, 3, 3)}, "LoHa with a core tensor"),
        ("wan-t2v", lora(WAN_Q) | {"diffusion_model.blocks.0.diff_m": torch.ones(1, 6, 32)}, "modulations"),
        ("z-image", lora(Q) | {"bundle_emb.x.string_to_param.*": torch.ones(2)}, "textual inversion"),
        ("z-image", lora(Q) | {"diffusion_model.layers.0.attention.to_q.reshape_weight": torch.ones(2)}, "reshape"),
        ("z-image", TEXT, "tunes a text encoder"),
        ("bundled/flux", TEXT, "tunes a text encoder"),
        ("z-image", lora("lora_te3_encoder_block_0"), "tunes a text encoder"),
        ("z-image", lora("transformer_2.layers.0.attention.to_q"), "no transformer_2"),
        ("z-image", lora(Q) | lora("diffusion_model.layers.7.attention.qkv", 96), "no layer layers_7_attention_qkv"),
        ("z-image", lora(Q) | lora(QKV, 96), "to_q twice"),
        ("z-image", lora(QKV, 90), r"qkv is \(90, 2\) x \(2, 32\), but the base's layer 96 x 32"),
        ("wan-t2v", lora("diffusion_model.blocks.99999999.self_attn.q"), "no layer blocks_99999999"),
        ("wan-t2v", lora(WAN_Q) | {f"{WAN_Q}.diff_b": torch.ones(7)}, "do not fit each other"),
        ("wan-t2v", lora(WAN_Q) | {f"{WAN_Q}.diff_b": torch.full((32,), torch.nan)}, "not all numbers"),
        ("wan-t2v", lora(WAN_Q) | {"diffusion_model.head.modulation.diff": torch.ones(1, 2, 32)}, "head_modulation"),
        ("wan-t2v", lora("diffusion_model.blocks.0.norm3"), "blocks_0_norm3 is"),
        ("z-image", {key: value for key, value in loha(Q, 32)[0].items() if "w2_b" not in key}, "half of"),
        ("z-image", lokr(Q, 64)[0], "but the base's layer 32 x 32"),
        ("sdxl", lora("lora_unet_down_blocks_0_resnets_0_conv1", 8, 8), "conv1 is"),
    ],
)
def test_partly_unusable_adapter_is_refused_by_name(
    name: str, tensors: dict[str, Tensor], message: str, folder: Path
) -> None:
    with pytest.raises(AdapterError, match=message):
        read_weights(adapter_file(tensors), outline(name, folder))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16])
def test_small_floats_and_pointwise_convolutions_become_matrices(dtype: torch.dtype, folder: Path) -> None:
    down, up = torch.ones(2, 32, 1, 1, dtype=dtype), torch.ones(32, 2, 1, 1, dtype=dtype)
    file = adapter_file({f"{Q}.lora_down.weight": down, f"{Q}.lora_up.weight": up})
    [[delta]] = read_weights(file, outline("z-image", folder)).layers.values()
    assert {(tuple(each.shape), each.dtype) for each in delta.tensors} == {
        ((2, 32), torch.bfloat16),
        ((32, 2), torch.bfloat16),
    }


def test_halves_of_the_last_modulation_are_swapped() -> None:
    """Flux' makers have shift before scale."""
    layer, up = "lora_unet_final_layer_adaLN_modulation_1", torch.randn(256, 2)
    file = adapter_file(lora(layer, 256, 128) | {f"{layer}.lora_up.weight": up})
    [[delta]] = read_weights(file, outline("bundled/flux", Path())).layers.values()
    assert isinstance(delta, LowRank)
    assert torch.equal(delta.up, torch.cat([up[128:], up[:128]]))


@pytest.mark.parametrize("stored", [torch.uint8, torch.float8_e4m3fn])
def test_matrices_beside_quantized_weights_have_the_compute_type(stored: torch.dtype) -> None:
    network = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)).to(torch.bfloat16)
    network[0].weight = nn.Parameter(torch.zeros(18, 1).to(stored), requires_grad=False)
    layers = read_weights(adapter_file(lora("0", 6, 6)), {"transformer": network}).layers
    assert [each.dtype for [delta] in layers.values() for each in delta.tensors] == [torch.bfloat16] * 2
