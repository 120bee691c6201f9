"""A model of the transformers library and its preprocessing, loaded as a judge's spec says, and its labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from deployments import checkpoints
from deployments.checkpoint_files import CheckpointError, pretrained_folder
from deployments.contract.moderation import CATEGORIES, JudgeSpec


def load(spec: JudgeSpec, kind: Any, preprocessing: Any = AutoTokenizer) -> tuple[Any, Any]:
    """What `preprocessing` and `kind` (Auto classes) make of the checkpoint.

    Raises CheckpointError, also for a checkpoint that has not all weights of a model of this kind: the others would be
    made up at random, and the scores with them.
    """
    if not spec.checkpoint:
        raise CheckpointError(f"the judge {spec.backend} needs a checkpoint")
    folder = pretrained_folder(spec.checkpoint, spec.revision)
    device = torch.device(checkpoints.device_for(spec.device))
    dtype = checkpoints.precision_for(spec.dtype, device)
    transformers_logging.disable_progress_bar()  # a bar is no use in a replica's log
    try:
        prepared = preprocessing.from_pretrained(folder, local_files_only=True)
        model, report = kind.from_pretrained(folder, dtype=dtype, output_loading_info=True, local_files_only=True)
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        raise CheckpointError(f"{spec.checkpoint} can't be loaded for the judge {spec.backend}: {error}") from error
    if missing := sorted(report["missing_keys"]):
        raise CheckpointError(
            f"{spec.checkpoint} was not trained for the judge {spec.backend}: no weights for {', '.join(missing[:4])}"
        )
    return prepared, model.eval().to(device)


def columns(spec: JudgeSpec, id2label: Mapping[int, str]) -> dict[str, list[int]]:
    """By category, which of a model's outputs stand for it. Raises CheckpointError."""
    unknown = sorted(set(spec.labels) - set(id2label.values()))
    if unknown or not spec.labels:  # one that is misspelt would leave its category unjudged, and nobody would know
        names = ", ".join(unknown) or "that has a category"
        raise CheckpointError(f"{spec.checkpoint} has no label {names}; it has: {', '.join(id2label.values())}")
    if strange := sorted(set(spec.labels.values()) - set(CATEGORIES)):
        raise CheckpointError(f"{', '.join(strange)}: no such category; labels may stand for {', '.join(CATEGORIES)}")
    found: dict[str, list[int]] = {}
    for number, label in id2label.items():
        if label in spec.labels:
            found.setdefault(spec.labels[label], []).append(int(number))
    return found
