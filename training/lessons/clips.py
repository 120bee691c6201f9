"""What is practised with clips: batches with captions, some with frames that are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import torch
from torch import Tensor

from deployments.contract.clip import FPS
from training.build.video_autoencoder import CELL, PACE
from training.worlds.clips.captions import caption, motion_alone
from training.worlds.clips.drawing import latent_frames, latents, picture_latents, tone_latents
from training.worlds.clips.scene import COLOURS, GRIDS, JOURNEY_S, MOTIONS, SHAPES, SIZES, Grid, Scene, random_scene

LENGTHS: Final = {25: 6, 49: 4, 73: 3, 97: 2, 121: 6, 241: 1}
"""Frames of a batch's clips, and how often."""
TOKENS: Final = 1792
"""Of a batch: fewer clips if they are longer, or wider."""

_SILENT: Final = 0.05
"""How many prompts are empty."""
_GIVEN: Final = 0.5
"""How many batches have frames that are given."""
_BARE: Final = 0.3
"""How many of their prompts tell what is not seen already, and no more."""
_EMPHASIS: Final = 3.0
"""How much more than background things weigh."""


@dataclass(frozen=True, slots=True)
class ClipBatch:
    """Tokens run through columns, rows and then latent frames."""

    prompts: tuple[str, ...]
    grid: Grid
    frames: int
    target: Tensor
    """(B, N, C): latents of unit scale."""
    given: Tensor
    """(N,): which of these are known from the beginning."""
    keyframes: Tensor
    """(B, K, C): latents of single frames that are known, too."""
    keyframe_coordinates: Tensor
    """(3, K, 2): from when to when, top to bottom, left to right; seconds and pixels."""
    tone: Tensor
    """(B, L, pitches)."""
    weight: Tensor
    """(B, N): how much each token counts; 1 on average."""
    labels: Tensor
    """(B, what can be told): motion, shape, colour, background, size."""

    @property
    def places(self) -> Tensor:
        """(N, 3): time in journeys, and row and column from the middle in pairs of cells."""
        times = torch.arange(latent_frames(self.frames)) * (PACE / FPS / JOURNEY_S)
        down, across = ((torch.arange(side) + 0.5 - side / 2) / 2 for side in self.grid)
        return torch.cartesian_prod(times, down, across)


CLASSES: Final = (len(MOTIONS), len(SHAPES), len(COLOURS), len(COLOURS), len(SIZES))


def lesson(random: Random) -> ClipBatch:
    grid = random.choice(GRIDS)
    count = random.choices(list(LENGTHS), list(LENGTHS.values()))[0]
    cells = grid[0] * grid[1] * latent_frames(count)
    scenes = [random_scene(random) for _ in range(max(1, round(TOKENS / cells)))]
    seen = random.random() < _GIVEN
    prompts = [_prompt(scene, seen, random) for scene in scenes]
    batch = clips(scenes, prompts, grid, count)
    return _with_given(batch, scenes, random) if seen else batch


def clips(scenes: Sequence[Scene], prompts: Sequence[str], grid: Grid, count: int) -> ClipBatch:
    """Of which nothing is given."""
    target, covered = latents(scenes, grid, count)
    weight = 1 + _EMPHASIS * covered.flatten(1)
    packed = _packed(target)
    return ClipBatch(
        prompts=tuple(prompts),
        grid=grid,
        frames=count,
        target=packed,
        given=torch.zeros(packed.shape[1], dtype=torch.bool),
        keyframes=packed[:, :0],
        keyframe_coordinates=torch.zeros(3, 0, 2),
        tone=tone_latents(scenes, grid, count),
        weight=weight / weight.mean(),
        labels=torch.tensor([_labels(scene) for scene in scenes]),
    )


def _with_given(batch: ClipBatch, scenes: Sequence[Scene], random: Random) -> ClipBatch:
    """The first frame, or a clip's beginning to go on from; or frames further on, with the first or without."""
    whole = latent_frames(batch.frames)
    beginning, later = 0, []
    match random.choice(("first", "first", "beginning", "keyframes")):
        case "first":
            beginning = 1
        case "beginning":
            beginning = random.randint(1, whole - 1)
        case _:
            beginning = random.choice((0, 1, 1))
            later = sorted(random.sample(range(1, whole), min(whole - 1, random.randint(1, 3))))
    given = torch.zeros_like(batch.given)
    given[: beginning * batch.grid[0] * batch.grid[1]] = True
    starts = [(cell - 1) * PACE + 1 for cell in later]
    keyframes = [_packed(picture_latents(scenes, batch.grid, batch.frames, frame)) for frame in starts]
    coordinates = [keyframe_coordinates(batch.grid, frame) for frame in starts]
    return replace(
        batch,
        given=given,
        keyframes=torch.cat([batch.keyframes, *keyframes], dim=1),
        keyframe_coordinates=torch.cat([batch.keyframe_coordinates, *coordinates], dim=1),
    )


def keyframe_coordinates(grid: Grid, frame: int) -> Tensor:
    """(3, rows x columns, 2), as the stock pipeline places a keyframe."""
    rows, columns = grid
    start = torch.cartesian_prod(
        torch.tensor([float(frame)]), torch.arange(rows) * float(CELL), torch.arange(columns) * float(CELL)
    ).T
    place = torch.stack([start, start + torch.tensor([1.0, CELL, CELL])[:, None]], dim=2)
    place[0] /= FPS
    return place


def _packed(latent: Tensor) -> Tensor:
    """(B, C, T, rows, columns) to tokens (B, N, C)."""
    return latent.flatten(2).transpose(1, 2)


def _prompt(scene: Scene, seen: bool, random: Random) -> str:
    if random.random() < _SILENT:
        return ""
    return motion_alone(scene, random) if seen and random.random() < _BARE else caption(scene, random)


def _labels(scene: Scene) -> list[int]:
    return [
        MOTIONS.index(scene.motion),
        SHAPES.index(scene.shape),
        COLOURS.index(scene.colour),
        COLOURS.index(scene.background),
        list(SIZES).index(scene.size),
    ]
