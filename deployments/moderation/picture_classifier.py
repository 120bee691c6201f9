"""Judges pictures with an image classifier from transformers, such as Falconsai/nsfw_image_detection.

It sees what the checkpoint's own preprocessing leaves: most squeeze the whole picture into a small square, some cut
its margins off first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import AutoImageProcessor, AutoModelForImageClassification

from deployments.contract.moderation import JudgeSpec, Scores
from deployments.moderation import pretrained
from deployments.pictures.pixels import Pixels

logger = logging.getLogger(__name__)

_MULTI_LABEL = "multi_label_classification"
"""In a checkpoint's `problem_type`: every label is a question of its own. Otherwise just one of them holds."""


class PictureClassifier:
    """One model and its preprocessing.

    Of several labels that stand for a category the scores add up where only one of them can hold; else the highest
    counts.
    """

    def __init__(self, spec: JudgeSpec) -> None:
        """Loads the checkpoint, which takes a while. Raises CheckpointError."""
        self._processor, self._model = pretrained.load(spec, AutoModelForImageClassification, AutoImageProcessor)
        self._columns = pretrained.columns(spec, self._model.config.id2label)
        logger.info("%s judges %s on %s", spec.checkpoint, ", ".join(sorted(self._columns)), self._model.device)

    @torch.inference_mode()
    def judge(self, pictures: Sequence[Pixels]) -> list[Scores]:
        """Raises RuntimeError when the model's numbers are none."""
        if not pictures:
            return []
        # Said outright: a picture three pixels high is easily taken for three channels.
        batch = self._processor(images=list(pictures), return_tensors="pt", input_data_format="channels_last")
        inputs: Tensor = batch["pixel_values"].to(self._model.device, self._model.dtype)
        logits: Tensor = self._model(pixel_values=inputs).logits.float().cpu()
        if not torch.isfinite(logits).all():
            raise RuntimeError("the picture classifier's results are not finite")
        several = self._model.config.problem_type == _MULTI_LABEL
        shares = torch.sigmoid(logits) if several else torch.softmax(logits, dim=-1)
        together = torch.amax if several else torch.sum
        return [
            {category: min(1.0, float(together(row[columns], dim=0))) for category, columns in self._columns.items()}
            for row in shares
        ]
