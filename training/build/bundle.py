"""Where the bundled checkpoints lie, and how their folders are written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

BUNDLE = Path(__file__).parents[2] / "deployments" / "bundled"
CHECKPOINTS = BUNDLE / "checkpoints"
OUTLINED = BUNDLE / "adapters" / "outlined.safetensors"
"""The tuned model that uploads can be tried with: a LoRA of `flux3`."""


def write(folder: Path, save: Callable[[str], object]) -> None:
    """Writes a checkpoint into `folder`, replacing what is there; `save` gets its path."""
    if folder.exists():
        shutil.rmtree(folder)
    replace_weights(folder, save)


def replace_weights(component: Path, save: Callable[[str], object]) -> None:
    """Saves a component of a checkpoint over the one that is there, which keeps what `save` doesn't write."""
    save(str(component))
    for file in component.rglob("*.safetensors"):
        file.chmod(0o644)  # written for their owner alone; a replica may run as another user
