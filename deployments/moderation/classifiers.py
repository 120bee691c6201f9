"""Classifiers from transformers: sequence classifiers of texts, and image classifiers.

Labels that can be true together (`problem_type` multi_label_classification) get a score each, by a sigmoid, and the
highest of a category counts. Probabilities of labels that exclude each other (softmax) add up. In a checkpoint that
doesn't say which it is, labels of images exclude each other, and labels of texts do if they are of one category.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)
from transformers.utils import logging as transformers_logging

from deployments import native_loading
from deployments.checkpoint_files import CheckpointError, pretrained_folder
from deployments.contract.moderation import CATEGORIES, ClassifierSpec, Scores
from deployments.images import Pixels

logger = logging.getLogger(__name__)


def load_pretrained(spec: ClassifierSpec, model_class: Any, preprocessing: Any = AutoTokenizer) -> tuple[Any, Any]:
    """Loads the checkpoint with the Auto classes `preprocessing` and `model_class`, and returns the results of both.

    Raises CheckpointError, also for missing weights: these would be random, and the scores with them.
    """
    if not spec.checkpoint:
        raise CheckpointError(f"the classifier {spec.backend} needs a checkpoint")
    folder = pretrained_folder(spec.checkpoint, spec.revision)
    device = torch.device(native_loading.device_for(spec.device))
    dtype = native_loading.precision_for(spec.dtype, device)
    transformers_logging.disable_progress_bar()  # useless in a replica's log
    try:
        preprocessor = preprocessing.from_pretrained(folder, local_files_only=True)
        model, report = model_class.from_pretrained(
            folder, dtype=dtype, output_loading_info=True, local_files_only=True
        )
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        raise CheckpointError(
            f"{spec.checkpoint} can't be loaded for the classifier {spec.backend}: {error}"
        ) from error
    if missing := sorted(report["missing_keys"]):
        raise CheckpointError(
            f"{spec.checkpoint} was not trained for classifier {spec.backend}: no weights for {', '.join(missing[:4])}"
        )
    return preprocessor, model.eval().to(device)


def label_columns(spec: ClassifierSpec, id2label: Mapping[int, str]) -> dict[str, list[int]]:
    """Returns the indexes of a model's outputs by category. Raises CheckpointError."""
    unknown = sorted(set(spec.labels) - set(id2label.values()))
    if unknown or not spec.labels:  # a misspelt label would leave its category unmoderated
        names = ", ".join(unknown) or "that has a category"
        raise CheckpointError(f"{spec.checkpoint} has no label {names}; it has: {', '.join(id2label.values())}")
    if strange := sorted(set(spec.labels.values()) - set(CATEGORIES)):
        raise CheckpointError(f"{', '.join(strange)}: no such category; labels may stand for {', '.join(CATEGORIES)}")
    columns: dict[str, list[int]] = {}
    for number, label in id2label.items():
        if label in spec.labels:
            columns.setdefault(spec.labels[label], []).append(int(number))
    return columns


_OVERLAP: Final = 4
"""Long texts are moderated in parts, each of which repeats this fraction (1/4) of the one before."""
_BATCH: Final = 16
"""Parts moderated at a time."""
_RESERVED: Final = 2
"""Positions that RoBERTa and similar models can't use, although their configurations count them."""


class TextClassifier:
    """Scores texts with one model and its tokenizer. Not thread-safe."""

    def __init__(self, spec: ClassifierSpec) -> None:
        """Loads the checkpoint, which must have all of `spec.labels`. Raises CheckpointError."""
        self._tokenizer, self._model = load_pretrained(spec, AutoModelForSequenceClassification)
        self._columns = label_columns(spec, self._model.config.id2label)
        self._is_exclusive = _is_exclusive(self._model.config, len(self._columns))
        positions = getattr(self._model.config, "max_position_embeddings", None)
        limit = self._tokenizer.model_max_length
        self._max_tokens = limit if positions is None else min(limit, positions - _RESERVED)
        logger.info("%s scores texts on %s, %s", spec.checkpoint, self._model.device, self._model.dtype)

    def classify(self, texts: Sequence[str]) -> list[Scores]:
        """Raises RuntimeError for NaN or infinity."""
        if not texts:
            return []
        parts: Any = self._tokenizer(
            list(texts),
            truncation=True,
            max_length=self._max_tokens,
            stride=self._max_tokens // _OVERLAP,
            return_overflowing_tokens=True,
        )
        owners = parts.pop("overflow_to_sample_mapping")
        highest = torch.zeros(len(texts), len(self._columns))
        order = sorted(range(len(owners)), key=lambda part: len(parts["input_ids"][part]))
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            scores = self._scores({name: [values[part] for part in batch] for name, values in parts.items()})
            for part, score in zip(batch, scores, strict=True):
                highest[owners[part]] = torch.maximum(highest[owners[part]], score)
        return [dict(zip(self._columns, row, strict=True)) for row in highest.tolist()]

    @torch.inference_mode()
    def _scores(self, inputs: dict[str, Any]) -> Tensor:
        """Returns scores, (parts, categories)."""
        batch = self._tokenizer.pad(inputs, return_tensors="pt").to(self._model.device)
        logits = self._model(**batch).logits.float().cpu()
        if not torch.isfinite(logits).all():
            raise RuntimeError("the classifier's results are not finite")
        if self._is_exclusive:
            probabilities = logits.softmax(dim=-1)
            return torch.stack(
                [probabilities[:, columns].sum(dim=-1) for columns in self._columns.values()], dim=-1
            ).clamp(max=1)
        probabilities = logits.sigmoid()
        return torch.stack([probabilities[:, columns].amax(dim=-1) for columns in self._columns.values()], dim=-1)


def _is_exclusive(config: Any, categories: int) -> bool:
    """Returns whether at most one label is true."""
    if config.problem_type is not None:
        return config.problem_type == "single_label_classification"
    return config.num_labels > 1 and categories == 1


_MULTI_LABEL = "multi_label_classification"
"""`problem_type` of a checkpoint whose labels are independent; otherwise one of them is true."""


class ImageClassifier:
    """Scores images with one model and its preprocessing."""

    def __init__(self, spec: ClassifierSpec) -> None:
        """Loads the checkpoint. Raises CheckpointError."""
        self._processor, self._model = load_pretrained(spec, AutoModelForImageClassification, AutoImageProcessor)
        self._columns = label_columns(spec, self._model.config.id2label)
        logger.info("%s scores %s on %s", spec.checkpoint, ", ".join(sorted(self._columns)), self._model.device)

    @torch.inference_mode()
    def classify(self, images: Sequence[Pixels]) -> list[Scores]:
        """Raises RuntimeError for NaN or infinity."""
        if not images:
            return []
        # Explicit, as an image three pixels high could be taken for three channels.
        batch = self._processor(images=list(images), return_tensors="pt", input_data_format="channels_last")
        inputs: Tensor = batch["pixel_values"].to(self._model.device, self._model.dtype)
        logits: Tensor = self._model(pixel_values=inputs).logits.float().cpu()
        if not torch.isfinite(logits).all():
            raise RuntimeError("the image classifier's results are not finite")
        is_multi_label = self._model.config.problem_type == _MULTI_LABEL
        probabilities = torch.sigmoid(logits) if is_multi_label else torch.softmax(logits, dim=-1)
        combine = torch.amax if is_multi_label else torch.sum
        return [
            {category: min(1.0, float(combine(row[columns], dim=0))) for category, columns in self._columns.items()}
            for row in probabilities
        ]
