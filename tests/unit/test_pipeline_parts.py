"""Adapters, schedulers and components that settings add to a diffusers pipeline: equal to stock diffusers' calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import diffusers
import pytest
import safetensors.torch
import torch
from support.adapters import adapted_layers, adapter_file
from support.tiny_pipelines import build

from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import ModelConfig
from deployments.diffusers_loading import load_pipeline
from deployments.lora.weights import fuse, read_weights

pytestmark = pytest.mark.filterwarnings("ignore")  # pipelines call their own deprecated functions

D: Any = diffusers


@pytest.fixture(scope="module")
def flux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("flux-schnell", tmp_path_factory.mktemp("parts") / "flux")


@pytest.fixture(scope="module")
def wan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wan-t2v", tmp_path_factory.mktemp("parts") / "wan")


@pytest.fixture(scope="module")
def sdxl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdxl", tmp_path_factory.mktemp("parts") / "sdxl")


def load(checkpoint: Path, **settings: Any) -> Any:
    small = {"checkpoint": str(checkpoint), "device": "cpu", "probe": {"width": 64, "height": 64}}
    return load_pipeline(ModelConfig.model_validate(small | settings)).pipeline


def write_adapter(file: Path, layers: Sequence[str], seed: int = 0) -> Path:
    """Writes an adapter of layers from 32 to 32."""
    draw = torch.Generator().manual_seed(seed)
    tensors = {f"transformer.{name}.lora_A.weight": torch.randn(2, 32, generator=draw) for name in layers}
    tensors |= {f"transformer.{name}.lora_B.weight": torch.randn(32, 2, generator=draw) for name in layers}
    file.write_bytes(adapter_file(tensors))
    return file


def assert_same(own: Any, stock: Any) -> None:
    for name, tensor in stock.state_dict().items():
        assert torch.equal(own.state_dict()[name], tensor), name


def test_fused_adapters_equal_stock_diffusers(flux: Path, tmp_path: Path) -> None:
    stock = D.FluxPipeline.from_pretrained(flux)
    files = [
        write_adapter(tmp_path / f"{seed}.safetensors", adapted_layers(stock.transformer), seed) for seed in (1, 2)
    ]
    plain = D.FluxPipeline.from_pretrained(flux)
    for file, scale in zip(files, (0.5, 1.0), strict=True):
        stock.load_lora_weights(file)
        stock.fuse_lora(lora_scale=scale)
        stock.unload_lora_weights()
    own = load(flux, loras=[{"file": str(files[0]), "scale": 0.5}, {"file": str(files[1])}])
    assert_same(own.transformer, stock.transformer)
    with pytest.raises(AssertionError):
        assert_same(plain.transformer, stock.transformer)


def test_adapter_changes_the_part_that_it_is_for(wan: Path, tmp_path: Path) -> None:
    stock = D.WanPipeline.from_pretrained(wan)
    file = write_adapter(tmp_path / "low.safetensors", ["blocks.0.attn1.to_q", "blocks.0.attn2.to_k"])
    high = {name: tensor.clone() for name, tensor in stock.transformer.state_dict().items()}
    stock.load_lora_weights(file, load_into_transformer_2=True)
    stock.fuse_lora(components=["transformer_2"])
    stock.unload_lora_weights()
    own = load(wan, loras=[{"file": str(file), "part": "transformer_2"}])
    assert_same(own.transformer_2, stock.transformer_2)
    assert all(torch.equal(own.transformer.state_dict()[name], tensor) for name, tensor in high.items())


LAYER = "transformer.blocks.0.attn1.to_q"


@pytest.mark.parametrize(
    "shapes",
    [
        {"hada_w1_a": (32, 2), "hada_w1_b": (2, 32), "hada_w2_a": (32, 2), "hada_w2_b": (2, 32)},
        {"lokr_w1": (4, 4), "lokr_w2": (8, 8)},
        {"lokr_w1": (4, 4), "lokr_w2_a": (8, 2), "lokr_w2_b": (2, 8)},
        {"diff": (32, 32), "diff_b": (32,)},
        {"lora_down.weight": (2, 32), "lora_up.weight": (32, 2), "alpha": ()},
    ],
    ids=["loha", "lokr", "lokr of low rank", "difference", "lora"],
)
def test_every_kind_is_fused_as_it_is_applied(wan: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    network = D.WanTransformer3DModel.from_pretrained(wan / "transformer")
    layer = network.get_submodule(LAYER.removeprefix("transformer."))
    data = safetensors.torch.save({f"{LAYER}.{name}": torch.rand(shape) for name, shape in shapes.items()})
    weights = read_weights(data, {"transformer": network})
    x = torch.randn(3, layer.in_features)
    with torch.no_grad():
        added = sum(delta(layer, x) * delta.scale for deltas in weights.layers.values() for delta in deltas)
        expected = layer(x) + 0.5 * added
        fuse(weights, {"transformer": network}, 0.5)
        torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (None, {"timestep_spacing": "trailing"}),
        ("EulerAncestralDiscreteScheduler", {}),
        ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}),
    ],
)
def test_scheduler_draws_what_stock_diffusers_draws(sdxl: Path, name: str | None, options: dict[str, Any]) -> None:
    stock = D.StableDiffusionXLPipeline.from_pretrained(sdxl)
    scheduler = type(stock.scheduler) if name is None else getattr(D, name)
    stock.scheduler = scheduler.from_config(stock.scheduler.config, **options)
    own = load(sdxl, scheduler={"name": name, "options": options})

    def draw(pipeline: Any) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        size = {"width": 64, "height": 64, "num_inference_steps": 3, "output_type": "np"}
        return torch.from_numpy(pipeline("a star", generator=generator, **size).images)

    assert torch.equal(draw(own), draw(stock))
    assert not torch.equal(draw(own), draw(load(sdxl)))


def test_component_comes_from_another_checkpoint(flux: Path, tmp_path: Path) -> None:
    other = D.AutoencoderKL.from_pretrained(flux / "vae")
    with torch.no_grad():
        other.decoder.conv_in.bias += 1
    other.save_pretrained(tmp_path / "vae")
    assert_same(load(flux, components={"vae": str(tmp_path / "vae")}).vae, other)
    encoder = load(flux, components={"text_encoder": str(flux), "tokenizer": str(flux)}).text_encoder
    assert_same(encoder, D.FluxPipeline.from_pretrained(flux).text_encoder)


def test_pipeline_gets_a_component_that_its_checkpoint_lacks(sdxl: Path, tmp_path: Path) -> None:
    unet = D.UNet2DConditionModel.from_pretrained(sdxl / "unet")
    network = D.ControlNetModel.from_unet(unet)
    network.save_pretrained(tmp_path / "control")
    settings: dict[str, Any] = {"pipeline": "StableDiffusionXLControlNetPipeline"}
    pipeline = load(sdxl, components={"controlnet": str(tmp_path / "control")}, **settings)
    assert_same(pipeline.controlnet, network)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scheduler": {"options": {"shfit": 5}}}, r"scheduler\.options: .* has no shfit: it has .*shift"),
        ({"scheduler": {"name": "FluxPipeline"}}, r"scheduler\.name: FluxPipeline is no scheduler"),
        ({"components": {"unet": "owner/name"}}, r"components: FluxPipeline has no unet: it has .*transformer"),
        ({"loras": [{"file": "FILE", "part": "unet"}]}, r"loras\.part: there is no unet: there are transformer"),
        ({"loras": [{"file": "FILE"}]}, r"loras: .*the base has no layer"),
        ({"loras": [{"file": "none"}]}, "is neither a file here"),
    ],
)
def test_setting_that_does_not_fit_is_named(flux: Path, tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    file = tmp_path / "a.safetensors"
    layer = "transformer.none.attn.to_q.lora"
    file.write_bytes(adapter_file({f"{layer}_A.weight": torch.ones(2, 4), f"{layer}_B.weight": torch.ones(4, 2)}))
    if "loras" in settings:
        settings = {"loras": [each | {"file": each["file"].replace("FILE", str(file))} for each in settings["loras"]]}
    with pytest.raises(CheckpointError, match=message):
        load(flux, **settings)
