"""Every way to name a LoRA's matrices gives the same layers, on every base; what is no plain LoRA is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from support.adapters import adapter_file
from torch import Tensor, nn

from deployments.lora.check import _outline
from deployments.lora.weights import AdapterError, LowRank, read_weights

QKV = [f"transformer_blocks.0.attn.to_{part}" for part in "qkv"]
SINGLE = "single_transformer_blocks.0"
LAYERS = {
    "flux": {
        "double_blocks.0.img_attn.qkv": QKV,
        "double_blocks.0.txt_mlp.2": ["transformer_blocks.0.ff_context.net.2"],
        "single_blocks.0.linear1": [*(f"{SINGLE}.attn.to_{part}" for part in "qkv"), f"{SINGLE}.proj_mlp"],
        "single_blocks.0.modulation.lin": [f"{SINGLE}.norm.linear"],
        "time_in.out_layer": ["time_text_embed.timestep_embedder.linear_2"],
    },
    "flux2klein": {
        "double_blocks.0.img_attn.qkv": QKV,
        "double_blocks.0.txt_mlp.2": ["transformer_blocks.0.ff_context.linear_out"],
        "single_blocks.0.linear1": [f"{SINGLE}.attn.to_qkv_mlp_proj"],
        "double_stream_modulation_img.lin": ["double_stream_modulation_img.linear"],
    },
    "flux3": {
        "content_mode_blocks.image.0.q_proj": ["mode_blocks.image.0.attn.to_q"],
        "single_blocks.0.mlp_in": [f"{SINGLE}.ff.linear_in"],
    },
}
"""By the name of a bundled checkpoint: BFL's layers, and those of the transformer that they are."""

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
    return files | {f"{place}.alpha": torch.tensor(len(first) / 2)}


KOHYA = ("lora_down.weight", "lora_up.weight")
BFL_CONVENTIONS = {
    "ComfyUI": make_convention("diffusion_model.{}"),
    "ComfyUI, down and up": make_convention("diffusion_model.{}", *KOHYA),
    "kohya": make_convention("lora_unet_{}", *KOHYA, flat=True),
    "kohya, alpha": with_alpha,
    "PEFT of BFL's": make_convention("base_model.model.{}"),
}
DIFFUSERS_CONVENTIONS = {
    "diffusers": make_convention("transformer.{}"),
    "diffusers, down and up": make_convention("transformer.{}", *KOHYA),
    "PEFT, adapter named": make_convention("base_model.model.{}", "lora_A.default.weight", "lora_B.default.weight"),
    "kohya of diffusers": make_convention("lora_transformer_{}", *KOHYA, flat=True),
    "bare": make_convention("{}"),
}


@pytest.fixture(scope="module", params=LAYERS)
def base(request: pytest.FixtureRequest) -> tuple[str, nn.Module]:
    return request.param, _outline(f"bundled/{request.param}", None)


def draw_pairs(base: tuple[str, nn.Module]) -> Iterator[tuple[str, list[str], Pair]]:
    """Of each of BFL's layers: its name, the transformer's layers, and matrices for all of them together."""
    draw = torch.Generator().manual_seed(0)
    name, transformer = base
    for source, layers in LAYERS[name].items():
        linears = [transformer.get_submodule(layer) for layer in layers]
        sizes = [linear.out_features for linear in linears if isinstance(linear, nn.Linear)]
        inputs = int(linears[0].get_parameter("weight").shape[1])
        yield source, layers, (torch.randn(4, inputs, generator=draw), torch.randn(sum(sizes), 4, generator=draw))


def effects(layers: dict[str, LowRank]) -> dict[str, Tensor]:
    return {name: layer.scale * layer.up @ layer.down for name, layer in layers.items()}


@pytest.mark.parametrize("convention", [*BFL_CONVENTIONS, *DIFFUSERS_CONVENTIONS])
def test_every_convention_gives_the_same_layers(base: tuple[str, nn.Module], convention: str) -> None:
    _, transformer = base
    tensors: dict[str, Tensor] = {}
    expected: dict[str, Tensor] = {}
    for source, layers, (down, up) in draw_pairs(base):
        rows = up.split([int(transformer.get_submodule(each).get_parameter("weight").shape[0]) for each in layers])
        expected |= {layer: part @ down for layer, part in zip(layers, rows, strict=True)}
        if convention in BFL_CONVENTIONS:
            tensors |= BFL_CONVENTIONS[convention](source, down, up)
        else:
            for layer, part in zip(layers, rows, strict=True):
                tensors |= DIFFUSERS_CONVENTIONS[convention](layer, down, part)
    actual = effects(read_weights(adapter_file(tensors), transformer).layers)
    assert actual.keys() == expected.keys()
    for name, effect in expected.items():
        torch.testing.assert_close(actual[name], effect)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("lora_unet_double_blocks_0_img_attn_qkv.dora_scale", "DoRA"),
        ("transformer.transformer_blocks.0.attn.to_q.lora_magnitude_vector.weight", "DoRA"),
        ("lora_unet_double_blocks_0_img_attn_qkv.hada_w1_a", "LoHa"),
        ("lora_unet_double_blocks_0_img_attn_qkv.lokr_w1", "LoKr"),
        ("lora_te1_text_model_encoder_layers_0_mlp_fc1.lora_down.weight", "text encoder"),
        ("text_encoder.text_model.encoder.layers.0.mlp.fc1.lora_A.weight", "text encoder"),
        ("transformer.transformer_blocks.0.attn.to_q.lora_B.bias", "lora_B.bias"),
        ("diffusion_model.double_blocks.0.img_attn.qkv.diff", "qkv.diff"),
    ],
)
def test_what_is_no_plain_lora_is_refused_by_name(key: str, message: str) -> None:
    base = "flux", _outline("bundled/flux", None)
    tensors = {
        name: tensor for s, _, pair in draw_pairs(base) for name, tensor in BFL_CONVENTIONS["kohya"](s, *pair).items()
    }
    with pytest.raises(AdapterError, match=message):
        read_weights(adapter_file(tensors | {key: torch.ones(4, 1)}), base[1])


def test_the_halves_of_the_last_modulation_are_swapped() -> None:
    """BFL has shift before scale."""
    transformer = _outline("bundled/flux", None)
    down, up = torch.randn(2, 128), torch.randn(256, 2)
    [layer] = read_weights(
        adapter_file(BFL_CONVENTIONS["kohya"]("final_layer.adaLN_modulation.1", down, up)), transformer
    ).layers.values()
    assert torch.equal(layer.up, torch.cat([up[128:], up[:128]]))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16])
def test_small_floats_and_matrices_of_convolutions_are_taken(dtype: torch.dtype) -> None:
    transformer = _outline("bundled/flux", None)
    down, up = torch.ones(2, 128, 1, 1, dtype=dtype), torch.ones(128, 2, 1, 1, dtype=dtype)
    file = adapter_file(BFL_CONVENTIONS["kohya"]("double_blocks.0.img_attn.proj", down, up))
    [layer] = read_weights(file, transformer).layers.values()
    assert (layer.down.shape, layer.down.dtype) == ((2, 128), torch.bfloat16)


def test_sizes_that_do_not_fit_name_the_layer_and_both_shapes() -> None:
    file = adapter_file(BFL_CONVENTIONS["kohya"]("single_blocks.0.linear1", torch.ones(4, 3072), torch.ones(21504, 4)))
    with pytest.raises(AdapterError, match=r"single_blocks_0_linear1 is \(21504, 4\) x \(4, 3072\), but .* 896 x 128"):
        read_weights(file, _outline("bundled/flux", None))
