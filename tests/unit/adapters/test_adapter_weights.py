from __future__ import annotations

import copy
import json
import pickle

import pytest
import torch
from support.adapters import adapted_layers, adapter_file, random_matrices
from torch import Tensor, nn

from deployments.adapters.weights import AdapterError, read_weights


def test_a_file_is_read_whole(transformer: nn.Module) -> None:
    weights = read_weights(adapter_file(random_matrices(transformer)), transformer)
    assert list(weights.layers) == sorted(adapted_layers(transformer))
    assert weights.rank == 2
    assert {layer.scale for layer in weights.layers.values()} == {1.0}


def test_alpha_is_taken_from_the_header(transformer: nn.Module) -> None:
    metadata = {"lora_adapter_metadata": json.dumps({"transformer.r": 2, "transformer.lora_alpha": 4})}
    weights = read_weights(adapter_file(random_matrices(transformer), metadata), transformer)
    assert {layer.scale for layer in weights.layers.values()} == {2.0}


def test_names_and_shapes_are_checked_without_weights(transformer: nn.Module) -> None:
    bare = copy.deepcopy(transformer).to("meta")
    assert len(read_weights(adapter_file(random_matrices(transformer)), bare).layers) == 3


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pickle.dumps({"transformer.x.lora_A.weight": 1}), "not a safetensors file"),
        (b"", "not a safetensors file"),
        (adapter_file({}), "holds no matrices"),
        (adapter_file({"transformer.norm.weight": torch.zeros(3)}), "not a LoRA"),
        (adapter_file({"transformer.none.lora_A.weight": torch.zeros(2, 3)}), "no linear layer none"),
    ],
)
def test_what_is_no_adapter_of_the_base_is_refused(transformer: nn.Module, data: bytes, reason: str) -> None:
    with pytest.raises(AdapterError, match=reason):
        read_weights(data, transformer)


def test_a_half_and_a_misfit_are_named(transformer: nn.Module) -> None:
    good = random_matrices(transformer)
    first = adapted_layers(transformer)[0]
    half = {name: tensor for name, tensor in good.items() if name != f"transformer.{first}.lora_B.weight"}
    with pytest.raises(AdapterError, match=f"half of {first}"):
        read_weights(adapter_file(half), transformer)
    misfit = good | {f"transformer.{first}.lora_A.weight": torch.zeros(2, 7)}
    with pytest.raises(AdapterError, match="but the base's layer"):
        read_weights(adapter_file(misfit), transformer)


@pytest.mark.parametrize(
    ("change", "metadata"),
    [
        ({".alpha": torch.ones(3)}, None),
        ({".lora_A.weight": torch.zeros(0, 128), ".lora_B.weight": torch.zeros(128, 0)}, None),
        ({".lora_A.weight": torch.tensor(1.0)}, None),
        ({".lora_A.weight": torch.full((2, 128), torch.nan)}, None),
        ({}, {"lora_adapter_metadata": "no JSON"}),
        ({}, {"lora_adapter_metadata": "[1]"}),
    ],
)
def test_damaged_files_are_refused_and_nothing_worse(
    transformer: nn.Module, change: dict[str, Tensor], metadata: dict[str, str] | None
) -> None:
    first = f"transformer.{adapted_layers(transformer)[0]}"
    damaged = random_matrices(transformer) | {first + suffix: tensor for suffix, tensor in change.items()}
    with pytest.raises(AdapterError):
        read_weights(adapter_file(damaged, metadata), transformer)
