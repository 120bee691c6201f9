"""Components that lie outside a checkpoint's folder, as several checkpoints have them in common.

A checkpoint's index says where, relative to its folder: `"_shared": {"vae": "../../autoencoders/flux1"}`. Diffusers
passes over entries that begin with an underscore, and published checkpoints have none of this name.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

import diffusers
import torch
from safetensors import SafetensorError

from deployments.checkpoint_files import CheckpointError, index_of


def shared_components(folder: Path, dtype: torch.dtype, without: Container[str] = ()) -> dict[str, Any]:
    """Those of the checkpoint in `folder`, by their names, for its pipeline, but for some. Raises CheckpointError."""
    index = index_of(folder)
    return {
        name: _loaded(getattr(diffusers, index[name][1]), folder / place, dtype)
        for name, place in index.get("_shared", {}).items()
        if name not in without
    }


def _loaded(kind: Any, folder: Path, dtype: torch.dtype) -> Any:
    if not folder.is_dir():
        raise CheckpointError(f"the checkpoint shares a component with others, but there is no {folder}")
    try:
        return kind.from_pretrained(folder, torch_dtype=dtype, use_safetensors=True, local_files_only=True)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: {error}") from error
