"""Builds the bundled Flux1 checkpoints: `python -m training.build.build_flux1 [FOLDER]`.

`flux` (text to image, with a Redux part for image prompts), `kontext`, `fill` and `canny` lie side by side in FOLDER.
They have the layout of published checkpoints and load through the same code, only their networks are tiny. Weights come
from a fixed seed, so building twice gives the same bytes. Until they are trained (`bundled/training`), pictures show
coloured noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel
from diffusers.pipelines.flux.modeling_flux import ReduxImageEncoder
from diffusers.pipelines.flux.pipeline_flux import FluxPipeline
from diffusers.pipelines.flux.pipeline_flux_control import FluxControlPipeline
from diffusers.pipelines.flux.pipeline_flux_fill import FluxFillPipeline
from diffusers.pipelines.flux.pipeline_flux_kontext import FluxKontextPipeline
from diffusers.pipelines.flux.pipeline_flux_prior_redux import FluxPriorReduxPipeline
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from transformers import SiglipImageProcessorPil, SiglipVisionConfig, SiglipVisionModel

from training.build.analytic_vae import LATENT_CHANNELS, analytic_kl_vae
from training.build.clip_t5 import (
    GIST_WIDTH,
    TEXT_WIDTH,
    clip_encoder,
    t5_encoder,
)
from training.build.folders import CHECKPOINTS, main, write
from training.build.vocabulary import clip, t5

SEED = 1

TOKEN_CHANNELS = 4 * LATENT_CHANNELS
MASK_CHANNELS = 16 * 16
"""The mask goes in as it is: one channel per pixel of a token."""

REDUX_WIDTH = 32

ROPE_AXES = (2, 14, 16)
ROPE_BASE = 10_000
"""Fixed in the architecture. The longer an axis, the more of its rotations are fast enough for small canvases."""


@dataclass(frozen=True, slots=True)
class Kind:
    pipeline: Any
    more_channels: int = 0
    """Of each token the transformer reads, beyond the latents."""


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "flux": Kind(FluxPipeline),
        "kontext": Kind(FluxKontextPipeline),
        "fill": Kind(FluxFillPipeline, TOKEN_CHANNELS + MASK_CHANNELS),
        "canny": Kind(FluxControlPipeline, TOKEN_CHANNELS),
    }
)


def transformer(more_channels: int) -> FluxTransformer2DModel:
    """1 block with separate weights for text and picture, 5 with joint ones, 128 wide."""
    return FluxTransformer2DModel(
        in_channels=TOKEN_CHANNELS + more_channels,
        out_channels=TOKEN_CHANNELS,
        num_layers=1,
        num_single_layers=5,
        attention_head_dim=32,
        num_attention_heads=4,
        joint_attention_dim=TEXT_WIDTH,
        pooled_projection_dim=GIST_WIDTH,
        guidance_embeds=True,
        axes_dims_rope=ROPE_AXES,
    )


def redux() -> FluxPriorReduxPipeline:
    """Sees 64 x 64 pixels as 16 tokens."""
    config = SiglipVisionConfig(
        hidden_size=REDUX_WIDTH,
        intermediate_size=2 * REDUX_WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=64,
        patch_size=16,
    )
    return FluxPriorReduxPipeline(
        image_encoder=SiglipVisionModel(config).half(),
        # The variant that needs no torchvision; on disk and in its results the same.
        feature_extractor=SiglipImageProcessorPil(size={"height": 64, "width": 64}),  # type: ignore[arg-type]
        image_embedder=ReduxImageEncoder(redux_dim=REDUX_WIDTH, txt_in_features=TEXT_WIDTH).half(),
    )


def pipeline(kind: Kind) -> Any:
    return kind.pipeline(
        # As in the published models: pictures of more tokens get a larger shift.
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        # The VAE is exact arithmetic on large constants and needs all bits; the others are kept small.
        vae=analytic_kl_vae(),
        text_encoder=clip_encoder().half(),
        tokenizer=clip(),
        text_encoder_2=t5_encoder().half(),
        tokenizer_2=t5(),
        transformer=transformer(kind.more_channels).half(),
    )


def build(folder: Path = CHECKPOINTS) -> None:
    """Writes the checkpoints into `folder`, replacing those of their names."""
    for name, kind in KINDS.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            write(folder / name, pipeline(kind).save_pretrained)
            if name == "flux":
                write(folder / name / "redux", redux().save_pretrained)


if __name__ == "__main__":
    main(build, CHECKPOINTS)
