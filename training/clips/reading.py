"""What a student should make out on its way: what the text says, and where each token is.

Tokens know only how far they are from each other, so it takes a while until they find out where the canvas ends and
when the clip begins, on which all else depends. Small heads that are asked for it early shorten that. They are of no
use afterwards, and in no checkpoint.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.contract.clip import FPS
from training.build.analytic_video_vae import PACE
from training.lessons.clips import CLASSES, Batch
from training.worlds.clips.drawing import latent_frames
from training.worlds.clips.scene import JOURNEY_S

_READ_AFTER: Final = (1, 2)
"""Of the blocks, from 0: early enough for the others to do something with it."""
_AXES: Final = 3
_TOLD: Final = 0.1
_PLACED: Final = 0.3
"""Shares in the loss, in which clips must matter most."""


class Reading(nn.Module):
    def __init__(self, transformer: Any) -> None:
        super().__init__()
        width = transformer.config.num_attention_heads * transformer.config.attention_head_dim
        self._streams: list[Tensor] = [torch.empty(0) for _ in _READ_AFTER]
        self._heads = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, _AXES + sum(CLASSES))) for _ in _READ_AFTER
        )
        for index, block in enumerate(_READ_AFTER):
            transformer.transformer_blocks[block].register_forward_hook(self._keeper(index))

    def _keeper(self, index: int) -> Any:
        def keep(block: nn.Module, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
            self._streams[index] = output[0]

        return keep

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of what is told and of where tokens are, after the transformer ran."""
        told, placed = torch.zeros(()), torch.zeros(())
        where = places(batch)
        for head, stream in zip(self._heads, self._streams, strict=True):
            place, *answers = head(stream[:, : len(where)].float()).split((_AXES, *CLASSES), dim=2)
            placed = placed + (place - where).square().mean()
            for scores, wanted in zip(answers, batch.labels.T, strict=True):
                told = told + F.cross_entropy(scores.transpose(1, 2), wanted[:, None].expand(scores.shape[:2]))
        self._streams = [torch.empty(0) for _ in _READ_AFTER]
        return _TOLD * told / len(self._heads), _PLACED * placed / len(self._heads)


def places(batch: Batch) -> Tensor:
    """(N, 3): time in journeys, and row and column from the middle in pairs of cells."""
    rows, columns = batch.grid
    times = torch.arange(latent_frames(batch.frames)) * (PACE / FPS / JOURNEY_S)
    down, across = ((torch.arange(side) + 0.5 - side / 2) / 2 for side in (rows, columns))
    return torch.cartesian_prod(times, down, across)
