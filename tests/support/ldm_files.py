"""Stable Diffusion 1.5 as one file: a tiny pipeline's weights with the names of the original repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from safetensors.torch import load_file, save_file
from torch import Tensor

from support.tiny_pipelines import build

_UNET: Final = {
    r"down_blocks\.0\.(resnets|attentions)\.0": r"input_blocks.1.\1",
    r"up_blocks\.0\.(resnets|attentions)\.(\d)": r"output_blocks.\2.\1",
    r"(put_blocks\.\d)\.resnets": r"\1.0",
    r"(put_blocks\.\d)\.attentions": r"\1.1",
    r"mid_block\.resnets\.0": "middle_block.0",
    r"mid_block\.attentions\.0": "middle_block.1",
    r"mid_block\.resnets\.1": "middle_block.2",
    r"time_embedding\.linear_1": "time_embed.0",
    r"time_embedding\.linear_2": "time_embed.2",
    r"conv_in": "input_blocks.0.0",
    r"conv_norm_out": "out.0",
    r"conv_out": "out.2",
    r"^((?!.*transformer).*)norm1": r"\1in_layers.0",
    r"conv1": "in_layers.2",
    r"time_emb_proj": "emb_layers.1",
    r"^((?!.*transformer).*)norm2": r"\1out_layers.0",
    r"conv2": "out_layers.3",
    r"conv_shortcut": "skip_connection",
}
_VAE: Final = {
    r"up_blocks\.0": "up.3",
    r"up_blocks\.1": "up.2",
    r"up_blocks\.2": "up.1",
    r"up_blocks\.3": "up.0",
    r"down_blocks": "down",
    r"mid_block\.resnets\.0": "mid.block_1",
    r"mid_block\.resnets\.1": "mid.block_2",
    r"mid_block\.attentions\.0": "mid.attn_1",
    r"resnets": "block",
    r"(down|up)samplers\.0": r"\1sample",
    r"conv_norm_out": "norm_out",
    r"group_norm": "norm",
    r"to_out\.0": "proj_out",
    r"to_(q|k|v)": r"\1",
}


def build_ldm_file(folder: Path) -> Path:
    """Writes the pipeline "sd15" into `folder`, moves its weights into one file beside it, and returns that file."""
    build("sd15", folder)
    parts = (
        ("unet", "model.diffusion_model.", _UNET),
        ("vae", "first_stage_model.", _VAE),
        ("text_encoder", "cond_stage_model.transformer.text_model.", {}),
    )
    weights: dict[str, Tensor] = {}
    for part, prefix, names in parts:
        [file] = (folder / part).glob("*.safetensors")
        for name, tensor in load_file(file).items():
            for pattern, replacement in names.items():
                name = re.sub(pattern, replacement, name)
            weights[f"{prefix}{name}"] = tensor.contiguous()
        file.unlink()
    single = folder.with_suffix(".safetensors")
    save_file(weights, single)
    return single
