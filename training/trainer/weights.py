"""The weights that are in the bundled checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from safetensors.torch import load_file
from torch import Tensor

from training.build.folders import CHECKPOINTS

Published: TypeAlias = Callable[[str, str], dict[str, Tensor]]
"""From a checkpoint's name and the folder of one of its components to its weights."""


def published(checkpoint: str, component: str, checkpoints: Path = CHECKPOINTS) -> dict[str, Tensor]:
    """In single precision."""
    [file] = (checkpoints / checkpoint / component).glob("*.safetensors")
    return {name: weight.float() for name, weight in load_file(file).items()}
