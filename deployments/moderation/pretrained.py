"""A tokenizer and a model of the transformers library, loaded as a judge's spec says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from deployments import checkpoints
from deployments.contract.moderation import JudgeSpec
from deployments.families.base import CheckpointError


def load(spec: JudgeSpec, kind: Any) -> tuple[Any, Any]:
    """The tokenizer and the model, which `kind` (an Auto class) makes. From the hub, each fetches what it needs.

    Raises CheckpointError.
    """
    if not spec.checkpoint:
        raise CheckpointError(f"the judge {spec.backend} needs a checkpoint")
    place, local = spec.checkpoint, False
    if place.startswith("bundled/") or Path(place).is_dir():
        place, local = checkpoints.locate(place)
    device = torch.device(checkpoints.device_for(spec.device))
    dtype = checkpoints.precision_for(spec.dtype, device)
    transformers_logging.disable_progress_bar()  # a bar is no use in a replica's log
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, revision=spec.revision, local_files_only=local)
        model = kind.from_pretrained(place, revision=spec.revision, local_files_only=local, dtype=dtype)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{spec.checkpoint} can't be loaded for the judge {spec.backend}: {error}") from error
    return tokenizer, model.eval().to(device)
