"""LoRA adapters with a few random layers, as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import safetensors.torch
import torch
from diffusers.models.transformers.transformer_hunyuan_video import HunyuanVideoTransformer3DModel
from diffusers.models.transformers.transformer_ltx import LTXVideoTransformer3DModel
from torch import Tensor, nn

from deployments.lora.check import outline
from deployments.lora.weights import Networks
from support import tiny_pipelines


def adapted_layers(transformer: nn.Module) -> list[str]:
    """Returns the layers that `random_matrices` adapts."""
    return [name for name, _ in transformer.named_modules() if name.endswith("attn.to_q")][:3]


def random_matrices(transformer: nn.Module, seed: int = 0, rank: int = 2) -> dict[str, Tensor]:
    """Returns matrices by diffusers' names."""
    draw = torch.Generator().manual_seed(seed)
    matrices: dict[str, Tensor] = {}
    for name in adapted_layers(transformer):
        linear = transformer.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        matrices[f"transformer.{name}.lora_A.weight"] = torch.randn(rank, linear.in_features, generator=draw)
        matrices[f"transformer.{name}.lora_B.weight"] = torch.randn(linear.out_features, rank, generator=draw)
    return matrices


def adapter_file(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    return safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata)


_WITHOUT_PIPELINE: Final[dict[str, Callable[[], nn.Module]]] = {
    "hunyuan-video-1.0": lambda: HunyuanVideoTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        num_layers=1,
        num_single_layers=1,
        num_refiner_layers=1,
        text_embed_dim=16,
        pooled_projection_dim=16,
        rope_axes_dim=(4, 4, 8),
    ),
    "ltx": lambda: LTXVideoTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, cross_attention_dim=32, num_layers=1, caption_channels=16
    ),
}
"""Networks without a tiny pipeline."""


def outline_of(name: str, folder: Path, *, encoders: bool = False) -> Networks:
    """Returns the networks, without weights, of a bundled checkpoint or of a tiny pipeline in `folder`."""
    if name in _WITHOUT_PIPELINE:
        with torch.device("meta"):
            return {"transformer": _WITHOUT_PIPELINE[name]()}
    if name.startswith("bundled/"):
        return outline(name)
    if not (folder / name).is_dir():
        tiny_pipelines.build(name, folder / name)
    return outline(str(folder / name), encoders=encoders, stock=True)
