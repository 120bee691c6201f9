"""Models of the size of published ones, with random weights made on the device, and bundled ones in their place.

Configurations are those of FLUX.2-klein-4B, FLUX.1, FLUX.3 klein and LTX-2.3, by diffusers' conversion scripts and the
defaults of its classes. Nothing is downloaded.
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

# Every argument of their classes has a type; here they come out of dicts.
diffusers: Any = typed_diffusers
transformers: Any = typed_transformers

BUNDLED: Final = {"klein-4b": "flux2klein", "flux1": "flux", "flux3": "flux3"}
PACKED: Final = ("varlen", "xformers", "flash", "sdpa_loop")
_STOCK: Final = ("FluxPipeline", "Flux2Pipeline", "Flux2KleinPipeline")
"""Pipelines that draw from words alone."""
_QWEN: Final = {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32}
_READER: Final = _QWEN | {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True}

FLUX_CODER: Final[dict[str, Any]] = {
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
"""The autoencoder of FLUX.1, which Z-Image has, too."""


@dataclass(frozen=True, slots=True)
class Model:
    family: Family
    pipeline: Any
    """The stock one, of the same networks; None where there is none."""

    @property
    def network(self) -> Any:
        return self.family.transformer


def build(name: str, device: torch.device, *, tiny: bool, tile_above: int) -> Model:
    """One of `BUNDLED`: at full size in bfloat16, or as it is bundled in float32."""
    load_options = LoadOptions(
        device, torch.float32 if tiny else torch.bfloat16, config=ModelConfig(tile_above=tile_above)
    )
    folder, _ = pipeline_folder(f"bundled/{BUNDLED[name]}")
    if name == "flux3":
        return Model(
            Flux3.load(folder, load_options) if tiny else Flux3(_flux3(folder, load_options), load_options), None
        )
    build_pipeline = _flux1 if name == "flux1" else _klein
    pipeline = load_pipeline(folder, load_options) if tiny else build_pipeline(folder, load_options)
    pipeline.set_progress_bar_config(disable=True)
    return Model((Flux1 if name == "flux1" else Flux2)(pipeline, load_options), pipeline)


def load(checkpoint: str, device: torch.device, tile_above: int) -> tuple[Model, native_loading.LoadedModel]:
    """A checkpoint of images as the service loads it, and the stock pipeline around its transformer."""
    options: Any = {"attention": ["native"], "packed_attention": PACKED, "tile_above": tile_above}
    loaded_model = native_loading.load(ModelConfig(checkpoint=checkpoint, device=str(device), **options))
    family, pipeline = native_loading.for_images(loaded_model.family), None
    folder, local_only = pipeline_folder(checkpoint)
    if read_index(folder)["_class_name"] in _STOCK:
        load_options = LoadOptions(device, family.transformer.dtype, local_only=local_only)
        pipeline = load_pipeline(folder, load_options, without=("transformer", *family.text_parts))
        pipeline.register_modules(transformer=family.transformer)
        pipeline.set_progress_bar_config(disable=True)
    return Model(family, pipeline), loaded_model


def video_transformer(device: torch.device, *, tiny: bool) -> Any:
    """LTX-2.3's by itself: what reads its prompts would leave no room to measure."""
    kind, (folder, _) = diffusers.LTX2VideoTransformer3DModel, pipeline_folder("bundled/ltx2")
    if tiny:
        return kind.from_pretrained(folder, subfolder="transformer", torch_dtype=torch.float32).to(device)
    gates = dict.fromkeys(("gated_attn", "cross_attn_mod", "audio_gated_attn", "audio_cross_attn_mod"), True)
    with with_defaults(LoadOptions(device, torch.bfloat16)):
        return kind(rope_type="split", use_prompt_embeddings=False, **gates).eval().requires_grad_(False)


def _klein(folder: Path, load_options: LoadOptions) -> Any:
    sizes = {"num_layers": 5, "num_single_layers": 20, "num_attention_heads": 24, "joint_attention_dim": 7680}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "tokenizer", model_max_length=131072)
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler")
    with with_defaults(load_options):
        vae, reader = diffusers.AutoencoderKLFlux2(), transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**_READER))
        network = diffusers.Flux2Transformer2DModel(**sizes, guidance_embeds=False)
    parts = {"scheduler": scheduler, "vae": vae, "text_encoder": reader, "tokenizer": tokenizer}
    return _ready(diffusers.Flux2KleinPipeline(**parts, transformer=network, is_distilled=True), load_options)


def _flux1(folder: Path, load_options: LoadOptions) -> Any:
    clip = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
    t5 = {"d_model": 4096, "d_ff": 10240, "num_heads": 64, "num_layers": 24, "feed_forward_proj": "gated-gelu"}
    parts: dict[str, Any] = {
        name: transformers.AutoTokenizer.from_pretrained(folder / name, model_max_length=most)
        for name, most in (("tokenizer", 77), ("tokenizer_2", 512))
    }
    parts["scheduler"] = diffusers.FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler")
    with with_defaults(load_options):
        parts["vae"] = diffusers.AutoencoderKL(**FLUX_CODER)
        parts["text_encoder"] = transformers.CLIPTextModel(transformers.CLIPTextConfig(**clip))
        parts["text_encoder_2"] = transformers.T5EncoderModel(transformers.T5Config(**t5))
        parts["transformer"] = diffusers.FluxTransformer2DModel(guidance_embeds=True)
    return _ready(diffusers.FluxPipeline(**parts), load_options)


def _flux3(folder: Path, load_options: LoadOptions) -> Any:
    """The modular pipeline of the bundled checkpoint, with networks of full size in it."""
    blocks = Flux3DistilledAutoBlocks()
    blocks.sub_blocks.pop("prompt_upsampler")
    pipeline: Any = blocks.init_pipeline(str(folder))
    pipeline.load_components(names=["tokenizer"], local_files_only=True)
    config = transformers.Qwen3VLConfig(text_config=_READER, tie_word_embeddings=True)
    with with_defaults(load_options):
        parts = {"vae": diffusers.AutoencoderKLFlux2(), "transformer": diffusers.Flux3Transformer2DModel(flow_map=True)}
        pipeline.update_components(text_encoder=transformers.Qwen3VLForConditionalGeneration(config), **parts)
    return _ready(pipeline, load_options)


def _ready(pipeline: Any, load_options: LoadOptions) -> Any:
    for part in pipeline.components.values():
        if isinstance(part, nn.Module):
            part.to(load_options.device, load_options.dtype).eval().requires_grad_(False)
    enliven(pipeline.transformer)
    return pipeline


@torch.no_grad()
def enliven(network: Any) -> None:
    """Weights by which tokens look at some others and change by what they see. With those of a new layer they hardly
    do, and an image that sees its neighbours would come out as if it did not."""
    for name, module in network.named_modules():
        leaf = name.rpartition(".")[2]
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features))
        elif leaf in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            nn.init.constant_(module.weight, 1.5)
        if leaf in (network._keep_in_fp32_modules or ()):
            module.float()


@contextmanager
def with_defaults(load_options: LoadOptions) -> Iterator[None]:
    torch.set_default_dtype(load_options.dtype)
    try:
        with load_options.device:
            yield
    finally:
        torch.set_default_dtype(torch.float32)
