"""Judges texts with a sequence classifier, such as unitary/toxic-bert, whose labels the spec gives meanings.

Labels that can be true together (`problem_type` multi_label_classification) are judged each on its own, by a sigmoid,
and of those with one meaning the likeliest counts. Of labels that exclude each other (softmax) the chances add up.
Where the checkpoint doesn't say which it is, labels of several categories can be true together.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from deployments.contract.moderation import JudgeSpec, Scores
from deployments.moderation import pretrained

logger = logging.getLogger(__name__)

_OVERLAP: Final = 4
"""A text that is too long for the model is judged in parts; each repeats this fraction (1/4) of the one before."""
_BATCH: Final = 16
"""Parts that are judged at a time."""
_RESERVED: Final = 2
"""Positions that RoBERTa and its kin can't use, though their configs count them."""


class TextClassifier:
    """One model and its tokenizer. Not to be used by two threads at a time."""

    def __init__(self, spec: JudgeSpec) -> None:
        """Loads the checkpoint, which must have all of `spec.labels`. Raises CheckpointError."""
        self._tokenizer, self._model = pretrained.load(spec, AutoModelForSequenceClassification)
        self._columns = pretrained.columns(spec, self._model.config.id2label)
        self._exclusive = _exclusive(self._model.config, len(self._columns))
        positions = getattr(self._model.config, "max_position_embeddings", None)
        limit = self._tokenizer.model_max_length
        self._room = limit if positions is None else min(limit, positions - _RESERVED)
        logger.info("%s judges texts on %s, %s", spec.checkpoint, self._model.device, self._model.dtype)

    def judge(self, texts: Sequence[str]) -> list[Scores]:
        """Raises RuntimeError when the model's numbers are none."""
        if not texts:
            return []
        parts: Any = self._tokenizer(
            list(texts),
            truncation=True,
            max_length=self._room,
            stride=self._room // _OVERLAP,
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
        """(parts, categories)."""
        padded = self._tokenizer.pad(inputs, return_tensors="pt").to(self._model.device)
        logits = self._model(**padded).logits.float().cpu()
        if not torch.isfinite(logits).all():
            raise RuntimeError("the classifier's numbers are none")
        if self._exclusive:
            shares = logits.softmax(dim=-1)
            return torch.stack([shares[:, columns].sum(dim=-1) for columns in self._columns.values()], dim=-1).clamp(
                max=1
            )
        chances = logits.sigmoid()
        return torch.stack([chances[:, columns].amax(dim=-1) for columns in self._columns.values()], dim=-1)


def _exclusive(config: Any, categories: int) -> bool:
    """Whether one label at most is true."""
    if config.problem_type is not None:
        return config.problem_type == "single_label_classification"
    return config.num_labels > 1 and categories == 1
