"""A model of the transformers library and its preprocessing, loaded as a judge's spec says."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from deployments import checkpoints
from deployments.checkpoint_files import CheckpointError, local_folder
from deployments.contract.moderation import JudgeSpec


def load(spec: JudgeSpec, kind: Any, preprocessing: Any = AutoTokenizer) -> tuple[Any, Any]:
    """What `preprocessing` and `kind` (Auto classes) make of the checkpoint. From the hub, each fetches what it needs.

    Raises CheckpointError, also for a checkpoint that has not all weights of a model of this kind: the others would be
    made up at random, and the scores with them.
    """
    if not spec.checkpoint:
        raise CheckpointError(f"the judge {spec.backend} needs a checkpoint")
    folder = local_folder(spec.checkpoint)
    place = folder or spec.checkpoint
    device = torch.device(checkpoints.device_for(spec.device))
    dtype = checkpoints.precision_for(spec.dtype, device)
    options: dict[str, Any] = {"revision": spec.revision, "local_files_only": folder is not None}
    transformers_logging.disable_progress_bar()  # a bar is no use in a replica's log
    try:
        prepared = preprocessing.from_pretrained(place, **options)
        model, report = kind.from_pretrained(place, dtype=dtype, output_loading_info=True, **options)
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        raise CheckpointError(f"{spec.checkpoint} can't be loaded for the judge {spec.backend}: {error}") from error
    if missing := sorted(report["missing_keys"]):
        raise CheckpointError(
            f"{spec.checkpoint} was not trained for the judge {spec.backend}: no weights for {', '.join(missing[:4])}"
        )
    return prepared, model.eval().to(device)
