"""The Flux3 checkpoint as a student."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deployments.families.flux3 import POSITION_SCALE, TEXT_MULTIPLE
from training.lessons.batches import Batch
from training.trainer.student import QwenStudent

_TEXT_STATES = 8


class Flux3Student(QwenStudent):
    name = "flux3"

    def _decoder(self) -> Any:
        return self.text_encoder.model.language_model

    def velocity(self, x: Tensor, t: Tensor, t_next: Tensor, batch: Batch) -> Tensor:
        stream, last = self.read(batch.prompts, TEXT_MULTIPLE, padding_position=1)
        references = {}
        if batch.references:
            references = {
                "image_cond_hidden_states": torch.cat(batch.references, dim=1),
                "image_cond_ids": torch.cat(
                    [_grid_ids(*grid, place=-1 - k) for k, grid in enumerate(batch.reference_grids)]
                ),
            }
        line = torch.zeros(stream.shape[1], 4)
        line[:, 3] = torch.arange(stream.shape[1])
        return self.transformer(
            hidden_states=x,
            encoder_hidden_states=torch.cat([*[stream] * (_TEXT_STATES - 1), last], dim=-1),
            timestep=t,
            target_timestep=t_next,
            img_ids=_grid_ids(*batch.grid, place=0),
            txt_ids=line,
            return_dict=False,
            **references,
        )[0]


def _grid_ids(rows: int, columns: int, place: int) -> Tensor:
    ids = torch.cartesian_prod(
        torch.arange(1), torch.arange(rows), torch.arange(columns), torch.tensor([place])
    ).float()
    ids[:, 1:3] *= POSITION_SCALE
    return ids
