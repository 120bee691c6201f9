"""The Flux2 Klein checkpoint as a student."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from training.lessons.batches import Batch
from training.trainer.student import QwenStudent

_REFERENCE_STEP = 10
"""Between the time coordinates of references, as the pipeline has it."""
_TEXT_STATES = 3


class Flux2Student(QwenStudent):
    name = "flux2klein"

    def _decoder(self) -> Any:
        return self.text_encoder.model

    def velocity(self, x: Tensor, t: Tensor, t_next: Tensor, batch: Batch) -> Tensor:
        stream, last = self.read(batch.prompts)
        text = torch.cat([*[stream] * (_TEXT_STATES - 1), last], dim=-1)
        grids = [_ids(1, *batch.grid)]
        grids += [_ids(1, *grid, time=_REFERENCE_STEP * (k + 1)) for k, grid in enumerate(batch.reference_grids)]
        moved = self.transformer(
            hidden_states=torch.cat([x, *batch.references], dim=1),
            encoder_hidden_states=text,
            timestep=t,
            guidance=None,
            img_ids=torch.cat(grids),
            txt_ids=_ids(text.shape[1], 1, 1),
            return_dict=False,
        )[0]
        return moved[:, : x.shape[1]]


def _ids(line: int, rows: int, columns: int, time: int = 0) -> Tensor:
    """Position ids (t, h, w, l)."""
    ids = torch.cartesian_prod(torch.tensor([time]), torch.arange(rows), torch.arange(columns), torch.arange(line))
    return ids.float()
