"""What a student should make out on its way: which token shows which thing, and what becomes of it.

Edits need things in references to be told apart by their shapes before anything can be done to them. A picture's error
alone says that too late and too faintly. So small heads read from the stream between the transformer's blocks, and what
they get wrong is part of the loss. They are of no use afterwards, and in no checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.lessons.latents import RESOLUTION
from training.worlds import palette, shapes
from training.worlds.pictures.drawing import silhouettes
from training.worlds.pictures.scene import MAX_THINGS, SIZES, Grid, Scene

CLASSES: Final = (1 + len(shapes.NAMES), 1 + len(palette.NAMES), 1 + len(SIZES), 3)
"""Of a token: shape, colour and size of the thing there, and whether that is in the target; 0 is no thing."""
UNKNOWN: Final = -100
"""A label that is not asked for."""

_READ_AFTER: Final = (1, 2)
"""Of the joint blocks, from 0: early enough for the others to do something with it."""
_COVERED: Final = 0.25
"""Part of a token from which on it shows a thing."""
_EMPTY: Final = 0.2
"""How much a token without a thing counts."""
_SHARE: Final = 0.03
"""Of the loss, in which pictures must matter most."""


class Reading(nn.Module):
    """Heads on the stream between a transformer's joint blocks, which end with the picture's and references' tokens."""

    def __init__(self, transformer: Any) -> None:
        super().__init__()
        width = transformer.inner_dim
        self._streams: list[Tensor] = [torch.empty(0) for _ in _READ_AFTER]
        self._heads = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, sum(CLASSES))) for _ in _READ_AFTER
        )
        for index, block in enumerate(_READ_AFTER):
            transformer.single_transformer_blocks[block].register_forward_hook(self._keeper(index))

    def _keeper(self, index: int) -> Any:
        def keep(block: nn.Module, inputs: Any, output: Any) -> None:
            self._streams[index] = output[-1] if isinstance(output, tuple) else output

        return keep

    def loss(self, labels: Tensor) -> Tensor:
        """Of `labels` (4, B, T), after the transformer ran: the picture's tokens, and then the references'."""
        total = torch.zeros((), device=labels.device)
        for head, stream in zip(self._heads, self._streams, strict=True):
            told = head(stream[:, -labels.shape[2] :].float()).split(CLASSES, dim=2)
            for scores, wanted in zip(told, labels, strict=True):
                weight = torch.where(wanted == 0, _EMPTY, 1.0) * (wanted != UNKNOWN)
                wrong = F.cross_entropy(scores.transpose(1, 2), wanted, reduction="none", ignore_index=UNKNOWN)
                total = total + (wrong * weight).sum() / weight.sum().clamp_min(1)
        self._streams = [torch.empty(0) for _ in _READ_AFTER]
        return _SHARE * total / len(self._heads)


def labels(scenes: Sequence[Scene], grid: Grid, targets: Sequence[Scene] | None = None) -> Tensor:
    """(4, B, rows x columns) of what `scenes` show; of references when there are `targets`."""
    shown = torch.zeros(len(CLASSES), len(scenes), grid[0] * grid[1], dtype=torch.long)
    if targets is None:
        shown[-1] = UNKNOWN
    for layer in range(MAX_THINGS):
        members = [index for index, scene in enumerate(scenes) if len(scene.things) > layer]
        if not members:
            break
        things = [scenes[index].things[layer] for index in members]
        circles = torch.tensor([thing.circle(grid) for thing in things])
        cover = F.avg_pool2d(silhouettes([thing.shape for thing in things], circles, grid, RESOLUTION), RESOLUTION)
        covered = cover.flatten(1) > _COVERED
        told = [
            torch.tensor([1 + shapes.NAMES.index(thing.shape) for thing in things]),
            torch.tensor([1 + palette.NAMES.index(thing.colour) for thing in things]),
            torch.tensor([UNKNOWN if thing.box else 1 + tuple(SIZES).index(thing.size) for thing in things]),
        ]
        if targets is not None:
            told.append(
                torch.tensor([1 + (t in targets[index].things) for index, t in zip(members, things, strict=True)])
            )
        for kind, of_things in enumerate(told):
            shown[kind, members] = torch.where(covered, of_things[:, None], shown[kind, members])
    return shown
