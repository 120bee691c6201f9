"""Builds the bundled Flux3 (distilled) checkpoint: `python -m training.build.build_flux3 [FOLDER]`.

The folder has the same layout as a published checkpoint of the family and loads through the same code, only its
networks are tiny: 3 million parameters, less than a thousandth of the real one's. Weights come from a fixed seed, so
building twice gives the same bytes. Until they are trained (`bundled/training`), pictures show coloured noise.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from diffusers.models.transformers.transformer_flux3 import Flux3Transformer2DModel
from diffusers.modular_pipelines.flux3.modular_blocks_flux3_distilled import Flux3DistilledAutoBlocks
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from training.build.analytic_vae import LATENT_CHANNELS, analytic_vae
from training.build.folders import CHECKPOINTS, main, write
from training.build.one_layer_text import TEXT_WIDTH, keep_first_layer, order_numbers, text_config
from training.build.vocabulary import qwen
from training.build.words import SPECIAL

FOLDER = CHECKPOINTS / "flux3"
SEED = 3

TEXT_LAYERS = 32
"""The pipeline reads the hidden states 4, 8, ... 32, so there must be that many layers."""
TEXT_STATES = 8

ROPE_AXES = (12, 8, 8, 4)
ROPE_BASE = 0.25


def text_encoder() -> Qwen3VLForConditionalGeneration:
    config = Qwen3VLConfig(
        text_config={
            **text_config(TEXT_LAYERS),
            "rope_scaling": {"mrope_interleaved": True, "mrope_section": [8, 4, 4], "rope_type": "default"},
        },
        # Never used: references go through the VAE. The stock class can't be made without it.
        vision_config={
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_heads": 2,
            "out_hidden_size": TEXT_WIDTH,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0],
        },
        tie_word_embeddings=True,
        vision_start_token_id=SPECIAL.index("<|vision_start|>"),
        vision_end_token_id=SPECIAL.index("<|vision_end|>"),
        image_token_id=SPECIAL.index("<|image_pad|>"),
        video_token_id=SPECIAL.index("<|video_pad|>"),
    )
    model = Qwen3VLForConditionalGeneration(config)
    keep_first_layer(model.get_input_embeddings(), model.model.language_model.layers)
    order_numbers(model.get_input_embeddings())
    return model


def transformer() -> Flux3Transformer2DModel:
    """1 block per token kind and 5 joint ones, 128 wide.

    Positions of neighbours are half a unit apart. On canvases of some 8 tokens a side rotations must be fast to tell
    them apart, so the base is below 1: 0.5 to 1.4 radians from one token to the next. The first axis is always 0, and
    so leaves room for what has no position.
    """
    return Flux3Transformer2DModel(
        in_channels=4 * LATENT_CHANNELS,
        cond_in_channels=4 * LATENT_CHANNELS,
        num_layers=1,
        num_single_layers=5,
        attention_head_dim=32,
        num_attention_heads=4,
        joint_attention_dim=TEXT_STATES * TEXT_WIDTH,
        timestep_channels=64,
        axes_dims_rope=ROPE_AXES,
        rope_theta=ROPE_BASE,  # type: ignore[arg-type]  # any positive number will do
        flow_map=True,
    )


def build(folder: Path = FOLDER) -> None:
    """Writes the checkpoint into `folder`, replacing what is there."""
    blocks = Flux3DistilledAutoBlocks()
    blocks.sub_blocks.pop("prompt_upsampler")
    pipeline = blocks.init_pipeline()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        pipeline.update_components(
            tokenizer=qwen(),
            # Half precision keeps the files small. The VAE is exact arithmetic on large constants and needs all bits.
            text_encoder=text_encoder().half(),
            transformer=transformer().half(),
            vae=analytic_vae(),
        )
    write(folder, lambda path: pipeline.save_pretrained(path, overwrite_modular_index=True))
    _make_relocatable(folder / "modular_model_index.json")


def _make_relocatable(index: Path) -> None:
    """The pipeline notes the path it was saved to; without one it takes the components that lie beside the index."""
    entries = json.loads(index.read_text())
    for entry in entries.values():
        if isinstance(entry, list) and isinstance(entry[-1], dict):
            entry[-1]["pretrained_model_name_or_path"] = None
    index.write_text(json.dumps(entries, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(build, FOLDER)
