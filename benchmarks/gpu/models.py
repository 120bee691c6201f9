"""Models of published sizes with random weights, made on the device, or bundled ones in their place.

Configurations are those of FLUX.2-klein-4B, FLUX.1, FLUX.3 klein and LTX-2.3, from diffusers' conversion scripts and
the defaults of its classes. Nothing is downloaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import diffusers as typed_diffusers
import torch
import transformers as typed_transformers
from diffusers.modular_pipelines.flux3.modular_blocks_flux3_distilled import Flux3DistilledAutoBlocks
from torch import nn

from deployments import native_loading
from deployments.checkpoint_files import pipeline_folder, read_index
from deployments.contract.model import ModelConfig
from deployments.families.family import Family
from deployments.families.flux1 import Flux1
from deployments.families.flux2 import Flux2
from deployments.families.flux3 import Flux3
from deployments.families.pipeline import LoadOptions, load_pipeline

# Untyped, since the arguments of their classes come from dicts here.
diffusers: Any = typed_diffusers
transformers: Any = typed_transformers

BUNDLED: Final = {"klein-4b": "flux2klein", "flux1": "flux", "flux3": "flux3"}
PACKED: Final = ("varlen", "xformers", "flash", "sdpa_loop")
_TEXT_PIPELINES: Final = ("FluxPipeline", "Flux2Pipeline", "Flux2KleinPipeline")
"""Stock pipelines that need only a prompt."""
_QWEN: Final = {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32}
_TEXT: Final = _QWEN | {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True}

FLUX_VAE: Final[dict[str, Any]] = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
    "latent_channels": 16,
    "scaling_factor": 0.3611,
    "shift_factor": 0.1159,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
}
"""Autoencoder of FLUX.1 and Z-Image."""


@dataclass(frozen=True, slots=True)
class BenchModel:
    family: Family
    pipeline: Any
    """Stock pipeline with the same networks; None if there is none."""

    @property
    def network(self) -> Any:
        return self.family.transformer


def build(name: str, device: torch.device, *, tiny: bool, tile_above: int) -> BenchModel:
    """Makes one of `BUNDLED`: at full size in bfloat16, or as bundled in float32."""
    load_options = LoadOptions(
        device, torch.float32 if tiny else torch.bfloat16, config=ModelConfig(tile_above=tile_above)
    )
    folder, _ = pipeline_folder(f"bundled/{BUNDLED[name]}")
    if name == "flux3":
        return BenchModel(
            Flux3.load(folder, load_options) if tiny else Flux3(_flux3(folder, load_options), load_options), None
        )
    build_pipeline = _flux1 if name == "flux1" else _klein
    pipeline = load_pipeline(folder, load_options) if tiny else build_pipeline(folder, load_options)
    pipeline.set_progress_bar_config(disable=True)
    return BenchModel((Flux1 if name == "flux1" else Flux2)(pipeline, load_options), pipeline)


def load(checkpoint: str, device: torch.device, tile_above: int) -> tuple[BenchModel, native_loading.LoadedModel]:
    """Loads an image checkpoint as the service does, and the stock pipeline around its transformer."""
    options: Any = {"attention": ["native"], "packed_attention": PACKED, "tile_above": tile_above}
    loaded_model = native_loading.load(ModelConfig(checkpoint=checkpoint, device=str(device), **options))
    family, pipeline = native_loading.for_images(loaded_model.family), None
    folder, local_only = pipeline_folder(checkpoint)
    if read_index(folder)["_class_name"] in _TEXT_PIPELINES:
        load_options = LoadOptions(device, family.transformer.dtype, local_only=local_only)
        pipeline = load_pipeline(folder, load_options, without=("transformer", *family.text_parts))
        pipeline.register_modules(transformer=family.transformer)
        pipeline.set_progress_bar_config(disable=True)
    return BenchModel(family, pipeline), loaded_model


def video_transformer(device: torch.device, *, tiny: bool) -> Any:
    """Makes the transformer of LTX-2.3 alone: its text encoder would leave too little memory."""
    network, (folder, _) = diffusers.LTX2VideoTransformer3DModel, pipeline_folder("bundled/ltx2")
    if tiny:
        return network.from_pretrained(folder, subfolder="transformer", torch_dtype=torch.float32).to(device)
    gates = dict.fromkeys(("gated_attn", "cross_attn_mod", "audio_gated_attn", "audio_cross_attn_mod"), True)
    with default_dtype_and_device(LoadOptions(device, torch.bfloat16)):
        return network(rope_type="split", use_prompt_embeddings=False, **gates).eval().requires_grad_(False)


def _klein(folder: Path, load_options: LoadOptions) -> Any:
    sizes = {"num_layers": 5, "num_single_layers": 20, "num_attention_heads": 24, "joint_attention_dim": 7680}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "tokenizer", model_max_length=131072)
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler")
    with default_dtype_and_device(load_options):
        vae, encoder = diffusers.AutoencoderKLFlux2(), transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**_TEXT))
        network = diffusers.Flux2Transformer2DModel(**sizes, guidance_embeds=False)
    parts = {"scheduler": scheduler, "vae": vae, "text_encoder": encoder, "tokenizer": tokenizer}
    return _ready(diffusers.Flux2KleinPipeline(**parts, transformer=network, is_distilled=True), load_options)


def _flux1(folder: Path, load_options: LoadOptions) -> Any:
    clip = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
    t5 = {"d_model": 4096, "d_ff": 10240, "num_heads": 64, "num_layers": 24, "feed_forward_proj": "gated-gelu"}
    parts: dict[str, Any] = {
        name: transformers.AutoTokenizer.from_pretrained(folder / name, model_max_length=max_length)
        for name, max_length in (("tokenizer", 77), ("tokenizer_2", 512))
    }
    parts["scheduler"] = diffusers.FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler")
    with default_dtype_and_device(load_options):
        parts["vae"] = diffusers.AutoencoderKL(**FLUX_VAE)
        parts["text_encoder"] = transformers.CLIPTextModel(transformers.CLIPTextConfig(**clip))
        parts["text_encoder_2"] = transformers.T5EncoderModel(transformers.T5Config(**t5))
        parts["transformer"] = diffusers.FluxTransformer2DModel(guidance_embeds=True)
    return _ready(diffusers.FluxPipeline(**parts), load_options)


def _flux3(folder: Path, load_options: LoadOptions) -> Any:
    """Makes the modular pipeline of the bundled checkpoint with networks of full size."""
    blocks = Flux3DistilledAutoBlocks()
    blocks.sub_blocks.pop("prompt_upsampler")
    pipeline: Any = blocks.init_pipeline(str(folder))
    pipeline.load_components(names=["tokenizer"], local_files_only=True)
    config = transformers.Qwen3VLConfig(text_config=_TEXT, tie_word_embeddings=True)
    with default_dtype_and_device(load_options):
        parts = {"vae": diffusers.AutoencoderKLFlux2(), "transformer": diffusers.Flux3Transformer2DModel(flow_map=True)}
        pipeline.update_components(text_encoder=transformers.Qwen3VLForConditionalGeneration(config), **parts)
    return _ready(pipeline, load_options)


def _ready(pipeline: Any, load_options: LoadOptions) -> Any:
    for part in pipeline.components.values():
        if isinstance(part, nn.Module):
            part.to(load_options.device, load_options.dtype).eval().requires_grad_(False)
    _initialize_weights(pipeline.transformer)
    return pipeline


@torch.no_grad()
def _initialize_weights(network: Any) -> None:
    """Sets weights with which attention changes the tokens.

    With a new layer's weights it hardly does, so that an image that attends to its neighbours would go unnoticed.
    """
    for name, module in network.named_modules():
        leaf = name.rpartition(".")[2]
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features))
        elif leaf in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            nn.init.constant_(module.weight, 1.5)
        if leaf in (network._keep_in_fp32_modules or ()):
            module.float()


@contextmanager
def default_dtype_and_device(load_options: LoadOptions) -> Iterator[None]:
    torch.set_default_dtype(load_options.dtype)
    try:
        with load_options.device:
            yield
    finally:
        torch.set_default_dtype(torch.float32)
