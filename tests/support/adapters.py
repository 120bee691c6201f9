"""Adapters (LoRA) of a few random layers, as files."""

from __future__ import annotations

import safetensors.torch
import torch
from torch import Tensor, nn


def adapted_layers(transformer: nn.Module) -> list[str]:
    """The layers that `random_matrices` are for."""
    return [name for name, _ in transformer.named_modules() if name.endswith("attn.to_q")][:3]


def random_matrices(transformer: nn.Module, seed: int = 0, rank: int = 2) -> dict[str, Tensor]:
    """By the names that diffusers gives them."""
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
