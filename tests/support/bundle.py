"""Bundled checkpoints for tests: configurations and copies."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file

from deployments.contract.model import BUNDLED, ModelConfig

OUTLINED: Final = BUNDLED.parent / "adapters" / "outlined.safetensors"
"""An adapter of `flux3` for uploads: it draws shapes with an outline."""


def cpu_config(checkpoint: str, **settings: Any) -> ModelConfig:
    return ModelConfig.model_validate({"checkpoint": checkpoint, "device": "cpu", "dtype": "float32"} | settings)


def copy_bundle(checkpoint: str, bundle: Path) -> Path:
    """Copies a checkpoint and the shared autoencoders into `bundle`. Returns the checkpoint's folder."""
    shutil.copytree(BUNDLED.parent / "autoencoders", bundle / "autoencoders", dirs_exist_ok=True)
    return Path(shutil.copytree(BUNDLED / checkpoint, bundle / "checkpoints" / checkpoint))


def poison(file: Path, name: str, row: int = 0) -> None:
    """Overwrites one row of the tensor `name` in a file of weights with NaN."""
    tensors = load_file(file)
    tensors[name][row] = torch.nan
    save_file(tensors, file, metadata={"format": "pt"})
