"""The Flux2 Klein and the Flux3 checkpoint as students: both read prompts with a Qwen."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from deployments.families.flux3 import POSITION_SCALE
from deployments.families.flux3_prompts import TEXT_MULTIPLE, TEXT_STATES
from training.build.checkpoints import component
from training.lessons.batches import Batch
from training.trainer.student import Student, tokenized

_KLEIN_REFERENCE_STEP = 10
"""Between the time coordinates of Flux2 Klein's references, as the pipeline has it."""
_KLEIN_TEXT_STATES = 3


class QwenStudent(Student):
    """A transformer and a text encoder of which only the first layer does anything, run as if it had no others.

    Its weights are the whole encoder's own, so what they learn is in all of it.
    """

    def __init__(self) -> None:
        self.transformer = component(self.name, "transformer")
        self.text_encoder = component(self.name, "text_encoder")
        self.tokenizer = component(self.name, "tokenizer")

    @abstractmethod
    def _decoder(self) -> Any:
        """The text encoder's stack of layers."""

    def networks(self) -> dict[str, nn.Module]:
        return {"transformer": self.transformer, "text_encoder": self.text_encoder}

    def read(
        self, prompts: Sequence[str], states: int, multiple: int | None = None, padding_position: int | None = None
    ) -> Tensor:
        """(B, L, states x width): so many hidden states, all of the stream after the first layer but the normed end."""
        tokens = tokenized(self.tokenizer, prompts, self.transformer.training, multiple)
        ids, mask = tokens["input_ids"], tokens["attention_mask"]
        positions = None
        if padding_position is not None:
            positions = torch.arange(ids.shape[1]).expand_as(mask).masked_fill(mask == 0, padding_position)
        streams: list[Any] = []
        decoder = self._decoder()
        whole, decoder.layers = decoder.layers, decoder.layers[:1]
        hook = whole[0].register_forward_hook(lambda layer, inputs, output: streams.append(output))
        try:
            last = decoder(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)
        finally:
            hook.remove()
            decoder.layers = whole
        return torch.cat([*streams * (states - 1), last.last_hidden_state], dim=-1)


class Flux2Student(QwenStudent):
    name = "flux2klein"

    def _decoder(self) -> Any:
        return self.text_encoder.model

    def velocity(self, x: Tensor, t: Tensor, t_next: Tensor, batch: Batch) -> Tensor:
        text = self.read(batch.prompts, _KLEIN_TEXT_STATES)
        grids = enumerate((batch.grid, *batch.reference_grids))
        moved = self.transformer(
            hidden_states=torch.cat([x, *batch.references], dim=1),
            encoder_hidden_states=text,
            timestep=t,
            guidance=None,
            img_ids=torch.cat([_position_ids(*grid, time=_KLEIN_REFERENCE_STEP * k) for k, grid in grids]),
            txt_ids=_position_ids(length=text.shape[1]),
            return_dict=False,
        )[0]
        return moved[:, : x.shape[1]]


class Flux3Student(QwenStudent):
    name = "flux3"

    def _decoder(self) -> Any:
        return self.text_encoder.model.language_model

    def velocity(self, x: Tensor, t: Tensor, t_next: Tensor, batch: Batch) -> Tensor:
        text = self.read(batch.prompts, len(TEXT_STATES), TEXT_MULTIPLE, padding_position=1)
        references: dict[str, Tensor] = {}
        if batch.references:
            grids = enumerate(batch.reference_grids, 1)
            references = {
                "image_cond_hidden_states": torch.cat(batch.references, dim=1),
                "image_cond_ids": torch.cat([_halved(_position_ids(*grid, place=-k)) for k, grid in grids]),
            }
        return self.transformer(
            hidden_states=x,
            encoder_hidden_states=text,
            timestep=t,
            target_timestep=t_next,
            img_ids=_halved(_position_ids(*batch.grid)),
            txt_ids=_position_ids(length=text.shape[1]),
            return_dict=False,
            **references,
        )[0]


def _position_ids(rows: int = 1, columns: int = 1, length: int = 1, time: int = 0, place: int = 0) -> Tensor:
    """(N, 4) of (t, h, w, l): a grid at one time and place, or `length` tokens of a text."""
    line = torch.arange(place, place + length)
    return torch.cartesian_prod(torch.tensor([time]), torch.arange(rows), torch.arange(columns), line).float()


def _halved(ids: Tensor) -> Tensor:
    return ids * torch.tensor([1, POSITION_SCALE, POSITION_SCALE, 1])
