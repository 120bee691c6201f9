"""Builds the bundled Flux2 Klein (distilled) checkpoint: `python -m training.build.build_flux2 [FOLDER]`.

The folder has the same layout as a published checkpoint of the family and loads through the same code, only its
networks are tiny: 3 million parameters, less than a thousandth of the real one's. Weights come from a fixed seed, so
building twice gives the same bytes. Until they are trained (`bundled/training`), pictures show coloured noise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers.models.transformers.transformer_flux2 import Flux2Transformer2DModel
from diffusers.pipelines.flux2.pipeline_flux2_klein import Flux2KleinPipeline
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from transformers import Qwen3Config, Qwen3ForCausalLM

from training.build.analytic_vae import LATENT_CHANNELS, analytic_vae
from training.build.folders import CHECKPOINTS, main, write
from training.build.one_layer_text import TEXT_WIDTH, keep_first_layer, order_numbers, text_config
from training.build.vocabulary import qwen

FOLDER = CHECKPOINTS / "flux2klein"
SEED = 2

TEXT_LAYERS = 27
"""The pipeline reads the hidden states 9, 18 and 27, so there must be that many layers."""
TEXT_STATES = 3

ROPE_AXES = (8, 10, 10, 4)
ROPE_BASE = 10
TEXT_LENGTH = 48
"""Tokens of a prompt; the rest is cut off."""


def text_encoder() -> Qwen3ForCausalLM:
    model = Qwen3ForCausalLM(Qwen3Config(**text_config(TEXT_LAYERS)))
    keep_first_layer(model.model.embed_tokens, model.model.layers)
    order_numbers(model.model.embed_tokens)
    return model


def transformer(guidance: bool = False) -> Flux2Transformer2DModel:
    """1 block with separate weights for text and picture, 5 with joint ones, 128 wide.

    `guidance` gives it an input for the strength of the prompt. Rotary frequencies suit grids of some 8 to 64 tokens a
    side: with the usual base most of them would hardly turn.
    """
    return Flux2Transformer2DModel(
        in_channels=4 * LATENT_CHANNELS,
        num_layers=1,
        num_single_layers=5,
        attention_head_dim=32,
        num_attention_heads=4,
        joint_attention_dim=TEXT_STATES * TEXT_WIDTH,
        timestep_guidance_channels=64,
        axes_dims_rope=ROPE_AXES,
        rope_theta=ROPE_BASE,
        guidance_embeds=guidance,
    )


def scheduler() -> FlowMatchEulerDiscreteScheduler:
    """As in the published models: pictures of more tokens get a larger shift."""
    return FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True)


def pipeline() -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return Flux2KleinPipeline(
            scheduler=scheduler(),
            # The VAE is exact arithmetic on large constants and needs all bits; the others are kept small.
            vae=analytic_vae(),
            text_encoder=text_encoder().half(),
            tokenizer=qwen(TEXT_LENGTH),  # type: ignore[arg-type]  # the annotation has the class's former name
            transformer=transformer().half(),
            is_distilled=True,
        )


def build(folder: Path = FOLDER) -> None:
    """Writes the checkpoint into `folder`, replacing what is there."""
    write(folder, pipeline().save_pretrained)


if __name__ == "__main__":
    main(build, FOLDER)
