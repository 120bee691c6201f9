"""The Flux3 checkpoint as a student."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from deployments.families.flux3 import POSITION_SCALE, TEXT_MULTIPLE
from training.build import build_flux3
from training.build.vocabulary import qwen
from training.lessons.batches import Batch
from training.trainer.text import OneLayer, padded
from training.trainer.weights import Published


class Flux3Student:
    shift = 5.0

    def __init__(self) -> None:
        self.transformer = build_flux3.transformer()
        self.text_encoder = build_flux3.text_encoder()
        self._words = qwen()
        self._layer = OneLayer(self.text_encoder.model.language_model)

    def networks(self) -> dict[str, nn.Module]:
        return {"transformer": self.transformer, "text_encoder": self.text_encoder}

    def checkpoints(self) -> dict[str, dict[str, nn.Module]]:
        return {"flux3": self.networks()}

    def adopt(self, published: Published) -> None:
        for component, network in self.networks().items():
            # The text encoder's last layer is its first one, and not stored twice.
            network.load_state_dict(published("flux3", component), strict=False)

    def velocity(self, x: Tensor, t: Tensor, t_next: Tensor, batch: Batch) -> Tensor:
        text = self._text(batch.prompts)
        references = {}
        if batch.references:
            references = {
                "image_cond_hidden_states": torch.cat(batch.references, dim=1),
                "image_cond_ids": torch.cat(
                    [_grid_ids(*grid, place=-1 - k) for k, grid in enumerate(batch.reference_grids)]
                ).to(x.device),
            }
        line = torch.zeros(text.shape[1], 4, device=x.device)
        line[:, 3] = torch.arange(text.shape[1])
        return self.transformer(
            hidden_states=x,
            encoder_hidden_states=text,
            timestep=t,
            target_timestep=t_next,
            img_ids=_grid_ids(*batch.grid, place=0).to(x.device),
            txt_ids=line,
            return_dict=False,
            **references,
        )[0]

    def _text(self, prompts: Sequence[str]) -> Tensor:
        """(B, L, 8 x width), L a multiple of 80 for the longest prompt, or less while learning."""
        longest = max(len(ids) for ids in self._words(list(prompts))["input_ids"])
        most = math.ceil(longest / TEXT_MULTIPLE) * TEXT_MULTIPLE
        length = padded(longest, most, self.transformer.training)
        inputs = self._words(list(prompts), return_tensors="pt", padding="max_length", max_length=length)
        stream, last = self._layer(inputs["input_ids"], inputs["attention_mask"], padding_position=1)
        return torch.cat([*[stream] * (build_flux3.TEXT_STATES - 1), last], dim=-1)


def _grid_ids(rows: int, columns: int, place: int) -> Tensor:
    ids = torch.cartesian_prod(
        torch.arange(1), torch.arange(rows), torch.arange(columns), torch.tensor([place])
    ).float()
    ids[:, 1:3] *= POSITION_SCALE
    return ids
