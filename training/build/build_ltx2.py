"""Builds the bundled LTX-2 checkpoint: `python -m training.build.build_ltx2 [FOLDER]`.

The folder has the same layout as a published checkpoint of the family and loads through the same code, only its
networks are tiny. Weights come from a fixed seed, so building twice gives the same bytes. What pictures and sounds are
made of is written down (`analytic_video_vae`, `analytic_sound`); the rest is learnt (`clips`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch
from diffusers.models.transformers.transformer_ltx2 import LTX2VideoTransformer3DModel
from diffusers.pipelines.ltx2.connectors import LTX2TextConnectors
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2ConditionPipeline
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from diffusers.utils.logging import disable_progress_bar
from torch import nn
from transformers import Gemma3Config, Gemma3ForConditionalGeneration

from training.build.analytic_sound import FEATURES, HOP, SAMPLE_RATE, analytic_audio_vae, analytic_vocoder
from training.build.analytic_video_vae import CELL, LATENT_CHANNELS, PACE, analytic_video_vae
from training.build.clip_words import SPECIAL, TEXT_LENGTH, VOCABULARY
from training.build.folders import CHECKPOINTS, main, write
from training.build.vocabulary_clips import clip_words

FOLDER = CHECKPOINTS / "ltx2"
SEED = 5

PLAIN: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "max_sequence_length": TEXT_LENGTH,
        "guidance_scale": 1.0,
        "audio_guidance_scale": 1.0,
        "guidance_rescale": 0.0,
        "audio_guidance_rescale": 0.0,
        "stg_scale": 0.0,
        "audio_stg_scale": 0.0,
        "spatio_temporal_guidance_blocks": None,
        "modality_scale": 1.0,
        "audio_modality_scale": 1.0,
    }
)
"""How the stock pipeline is to be called: one pass a step. Its defaults are four, for a model of 48 blocks."""

TEXT_WIDTH = 64
_EMBEDDING_SCALE = 1.0
"""Of words, times the root of the width, which Gemma multiplies them with."""

BLOCKS = 5
HEADS = 4
WIDTH, SOUND_WIDTH = 112, 32

ROPE_BASE = 8.0
ROPE_SPAN_PX, ROPE_SPAN_S = 256, 4
"""Positions are told by rotations that grow with the share of this span: from one cell to the next by 0.4 to 3 radians
along the sides and by 0.3 to 2 in time."""


def text_encoder() -> Gemma3ForConditionalGeneration:
    config = Gemma3Config(
        text_config={
            "vocab_size": VOCABULARY,
            "hidden_size": TEXT_WIDTH,
            "intermediate_size": TEXT_WIDTH,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": TEXT_WIDTH // 2,
            "query_pre_attn_scalar": TEXT_WIDTH // 2,
            "max_position_embeddings": 1024,
            "pad_token_id": SPECIAL.index("<pad>"),
            "eos_token_id": SPECIAL.index("<eos>"),
            "bos_token_id": SPECIAL.index("<bos>"),
        },
        # Never used: pictures go through the VAE. The stock class can't be made without it.
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 28,
            "patch_size": 14,
        },
        mm_tokens_per_image=4,
        boi_token_index=SPECIAL.index("<start_of_image>"),
        eoi_token_index=SPECIAL.index("<end_of_image>"),
        image_token_index=SPECIAL.index("<image_soft_token>"),
        tie_word_embeddings=True,
    )
    model = Gemma3ForConditionalGeneration(config)
    with torch.no_grad():
        model.get_input_embeddings().get_parameter("weight").normal_(std=_EMBEDDING_SCALE * TEXT_WIDTH**-0.5)
    return model


def connectors() -> LTX2TextConnectors:
    """For both streams, the stream before and after the text encoder's layer, each projected on its own."""
    return LTX2TextConnectors(
        caption_channels=TEXT_WIDTH,
        text_proj_in_factor=2,
        video_connector_num_attention_heads=HEADS,
        video_connector_attention_head_dim=WIDTH // HEADS,
        video_connector_num_layers=0,
        video_connector_num_learnable_registers=None,
        audio_connector_num_attention_heads=HEADS,
        audio_connector_attention_head_dim=SOUND_WIDTH // HEADS,
        audio_connector_num_layers=0,
        audio_connector_num_learnable_registers=None,
        rope_double_precision=False,
        rope_type="split",
        per_modality_projections=True,
        video_hidden_dim=WIDTH,
        audio_hidden_dim=SOUND_WIDTH,
        proj_bias=True,
    )


def transformer() -> LTX2VideoTransformer3DModel:
    """Begins by passing on what it gets, which at first is noise: most of the velocity that is asked for."""
    model = LTX2VideoTransformer3DModel(
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        num_layers=BLOCKS,
        num_attention_heads=HEADS,
        attention_head_dim=WIDTH // HEADS,
        cross_attention_dim=WIDTH,
        vae_scale_factors=(PACE, CELL, CELL),
        pos_embed_max_pos=ROPE_SPAN_S,
        base_height=ROPE_SPAN_PX,
        base_width=ROPE_SPAN_PX,
        audio_in_channels=FEATURES,
        audio_out_channels=FEATURES,
        audio_num_attention_heads=HEADS,
        audio_attention_head_dim=SOUND_WIDTH // HEADS,
        audio_cross_attention_dim=SOUND_WIDTH,
        audio_pos_embed_max_pos=ROPE_SPAN_S,
        audio_sampling_rate=SAMPLE_RATE,
        audio_hop_length=HOP,
        rope_theta=ROPE_BASE,
        rope_double_precision=False,
        rope_type="split",
        use_prompt_embeddings=False,
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("transformer_blocks.") and (".to_out." in name or ".net.2." in name):
                parameter.zero_()
        _pass_on(model.proj_in, model.proj_out)
        _pass_on(model.audio_proj_in, model.audio_proj_out)
    return model


def _pass_on(enter: nn.Linear, leave: nn.Linear) -> None:
    """Latents go through a stream that is wider, and normed at its end, as they are."""
    basis = nn.init.orthogonal_(torch.empty_like(enter.weight))
    enter.weight.copy_(basis)
    leave.weight.copy_(basis.T * (basis.shape[1] / basis.shape[0]) ** 0.5)
    nn.init.zeros_(enter.bias)
    nn.init.zeros_(leave.bias)


def build(folder: Path = FOLDER) -> None:
    """Writes the checkpoint into `folder`, replacing what is there."""
    disable_progress_bar()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        # Half precision keeps the files small; what is written down survives it.
        pipeline = LTX2ConditionPipeline(
            scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, base_shift=0.95, max_shift=2.05),
            vae=analytic_video_vae().half(),
            audio_vae=analytic_audio_vae().half(),
            text_encoder=text_encoder().half(),
            tokenizer=clip_words(),
            connectors=connectors().half(),
            transformer=transformer().half(),
            vocoder=analytic_vocoder().half(),
        )
    write(folder, pipeline.save_pretrained)


if __name__ == "__main__":
    main(build, FOLDER)
