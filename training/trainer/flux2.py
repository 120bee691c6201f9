"""The Flux2 Klein checkpoint as a student."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from training.build import build_flux2
from training.build.vocabulary import qwen
from training.lessons.batches import Batch
from training.trainer.text import OneLayer, padded
from training.trainer.weights import Published

_REFERENCE_STEP = 10
"""Between the time coordinates of references, as the pipeline has it."""


class Flux2Student:
    shift = 5.0

    def __init__(self) -> None:
        self.transformer = build_flux2.transformer()
        self.text_encoder = build_flux2.text_encoder()
        self._words = qwen()
        self._layer = OneLayer(self.text_encoder.model)

    def networks(self) -> dict[str, nn.Module]:
        return {"transformer": self.transformer, "text_encoder": self.text_encoder}

    def checkpoints(self) -> dict[str, dict[str, nn.Module]]:
        return {"flux2klein": self.networks()}

    def adopt(self, published: Published) -> None:
        for component, network in self.networks().items():
            # The text encoder's last layer is its first one, and not stored twice.
            network.load_state_dict(published("flux2klein", component), strict=False)

    def velocity(self, x: Tensor, t: Tensor, t_next: Tensor, batch: Batch) -> Tensor:
        text = self._text(batch.prompts)
        grids = [_ids(1, *batch.grid)]
        grids += [_ids(1, *grid, time=_REFERENCE_STEP * (k + 1)) for k, grid in enumerate(batch.reference_grids)]
        moved = self.transformer(
            hidden_states=torch.cat([x, *batch.references], dim=1),
            encoder_hidden_states=text,
            timestep=t,
            guidance=None,
            img_ids=torch.cat(grids).to(x.device),
            txt_ids=_ids(text.shape[1], 1, 1).to(x.device),
            return_dict=False,
        )[0]
        return moved[:, : x.shape[1]]

    def _text(self, prompts: Sequence[str]) -> Tensor:
        """(B, TEXT_LENGTH, 3 x width), or shorter while learning."""
        longest = max(len(ids) for ids in self._words(list(prompts))["input_ids"])
        inputs = self._words(
            list(prompts),
            return_tensors="pt",
            padding="max_length",
            truncation=True,
            max_length=padded(longest, build_flux2.TEXT_LENGTH, self.transformer.training),
        )
        stream, last = self._layer(inputs["input_ids"], inputs["attention_mask"])
        return torch.cat([*[stream] * (build_flux2.TEXT_STATES - 1), last], dim=-1)


def _ids(line: int, rows: int, columns: int, time: int = 0) -> Tensor:
    """Position ids (t, h, w, l)."""
    ids = torch.cartesian_prod(torch.tensor([time]), torch.arange(rows), torch.arange(columns), torch.arange(line))
    return ids.float()
