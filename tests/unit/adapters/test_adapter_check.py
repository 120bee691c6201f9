from __future__ import annotations

from pathlib import Path

from support.adapters import adapter_file, random_matrices
from torch import nn

from deployments.adapters.check import check


def test_an_adapter_of_the_base_is_described(transformer: nn.Module, tmp_path: Path) -> None:
    file = tmp_path / "adapter.safetensors"
    file.write_bytes(adapter_file(random_matrices(transformer, rank=4)))
    assert check("bundled/flux3", file) == {"rank": 4, "layers": 3}


def test_one_of_another_base_is_refused_with_a_reason(transformer: nn.Module, tmp_path: Path) -> None:
    file = tmp_path / "adapter.safetensors"
    file.write_bytes(adapter_file(random_matrices(transformer)))
    refused = check("bundled/flux", file)
    assert list(refused) == ["error"]
    assert "layer" in str(refused["error"])
