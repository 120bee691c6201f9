"""Lessons as tensors: what a model gets to see, and what it should answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType
from typing import Final

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.families.canvas import grid_for
from deployments.families.flux1_latents import CELL, TOKEN
from deployments.families.flux1_latents import to_tokens as to_grid_tokens
from training.build.detailed_prompts import details
from training.lessons.latents import RESOLUTION, spread, to_tokens
from training.lessons.pictures import LESSONS, Lesson, tell
from training.trainer.reading import labels
from training.worlds.pictures.drawing import draw, masked
from training.worlds.pictures.scene import CANVAS_SIDE, Grid, Scene

RATIOS: Final = (
    (1, 1),
    (4, 3),
    (3, 4),
    (3, 2),
    (2, 3),
    (16, 9),
    (9, 16),
    (21, 9),
    (9, 21),
    (2, 1),
    (1, 2),
    (5, 4),
    (4, 5),
)
"""Widths and heights that are practised."""
SQUARE: Final = 0.25
OTHER_GRID: Final = 0.1
"""How often one of several references has another shape than the picture."""

ALONE: Final = 0.15
ALL: Final = 0.4
"""Parts of a course: up to the first only text to image is learnt, which all other kinds need, from the second on
everything. Outlines take longest to learn, and take least time where there are no references."""

DETAILED: Final = 0.2
"""How many prompts have been through a rewriter, which adds details that mean nothing here."""
_DETAILS: Final = tuple(sorted(details()))

THING_WEIGHT: Final = 4.0
"""How much more a thing and its outline count than the background, which would drown them by its size."""
REFERENCE_NOISE: Final = 0.03
"""Clients send pictures that went through a decoder and a file format."""


@dataclass(frozen=True, slots=True)
class Batch:
    """`target` and `weight` (B, N, 48), references (B, M, 48) with a grid each; `channels` (B, N, K) are beside x."""

    prompts: tuple[str, ...]
    grid: Grid
    target: Tensor
    weight: Tensor
    references: tuple[Tensor, ...] = ()
    reference_grids: tuple[Grid, ...] = ()
    channels: Tensor | None = None
    image_prompts: Tensor | None = None
    """(B, 3, H, W) in [-1, 1]."""
    labels: Tensor | None = None
    """(4, B, N + M) of what the tokens show (`reading`)."""

    def showing(self, target: Tensor) -> Batch:
        """The same in another style."""
        return replace(self, target=target)

    def to(self, device: torch.device) -> Batch:
        return replace(
            self,
            target=self.target.to(device),
            weight=self.weight.to(device),
            references=tuple(reference.to(device) for reference in self.references),
            channels=None if self.channels is None else self.channels.to(device),
            image_prompts=None if self.image_prompts is None else self.image_prompts.to(device),
            labels=None if self.labels is None else self.labels.to(device),
        )


def random_grid(random: Random) -> Grid:
    """Long ones less often: they take longer to learn from."""
    shares = [math.sqrt(min(ratio) / max(ratio)) for ratio in RATIOS]
    ratio = (1, 1) if random.random() < SQUARE else random.choices(RATIOS, shares)[0]
    return grid_for(*ratio, CANVAS_SIDE)


def practice(mix: Mapping[str, float], size: int, random: Random, done: float) -> Batch:
    """A batch of one kind of lesson, on one canvas."""
    others = min(max((done - ALONE) / (ALL - ALONE), 0.0), 1.0)
    kind = random.choices(tuple(mix), [share if kind == "tell" else others * share for kind, share in mix.items()])[0]
    grid = random_grid(random)
    lessons = (
        _tellings(grid, size, random) if kind == "tell" else [LESSONS[kind](random, grid, False) for _ in range(size)]
    )
    return BUILDERS.get(kind, batch_of)(lessons, grid, random)


def _tellings(grid: Grid, size: int, random: Random) -> list[Lesson]:
    """Of about the same length: a batch takes as long as its longest prompt."""
    things = random.choices((0, 1, 2, 3), (1, 12, 7, 2))[0]
    lessons = [tell(random, grid, things=things) for _ in range(size)]
    return [_detailed(lesson, random) for lesson in lessons] if random.random() < DETAILED else lessons


def _detailed(lesson: Lesson, random: Random) -> Lesson:
    phrases = random.sample(_DETAILS, random.randint(1, 4))
    return replace(lesson, prompt=", ".join([lesson.prompt, *phrases]))


def batch_of(lessons: list[Lesson], grid: Grid, random: Random) -> Batch:
    target, covered = draw([lesson.target for lesson in lessons], grid, RESOLUTION)
    references, grids, read = [], [], [labels([lesson.target for lesson in lessons], grid)]
    for index in range(len(lessons[0].references)):
        scenes = [lesson.references[index] for lesson in lessons]
        other = random_grid(random)
        # One picture's edits keep its shape, so that positions stay what they were.
        odd = len(lessons[0].references) > 1 and random.random() < OTHER_GRID
        seen = other if odd and all(scene.fits(other) for scene in scenes) else grid
        references.append(_seen(scenes, seen))
        grids.append(seen)
        read.append(labels(scenes, seen, [lesson.target for lesson in lessons]))
    return Batch(
        prompts=tuple(lesson.prompt for lesson in lessons),
        grid=grid,
        target=to_tokens(target),
        weight=weights(covered),
        references=tuple(references),
        reference_grids=tuple(grids),
        labels=torch.cat(read, dim=2),
    )


def masked_batch(lessons: list[Lesson], grid: Grid, random: Random) -> Batch:
    """Beside the noise: the picture without its masked part, and the mask, as Fill reads them."""
    before, after = (draw(scenes, grid, TOKEN, samples=1) for scenes in _before_and_after(lessons))
    mask = drawn_masks(lessons, grid)
    target = _averaged(torch.lerp(before[0], after[0], mask))
    kept = to_tokens(_averaged(before[0] * (1 - mask)))
    return Batch(
        prompts=tuple(lesson.prompt for lesson in lessons),
        grid=grid,
        target=to_tokens(target),
        weight=weights(_averaged(torch.maximum(after[1] * mask, 0.5 * mask))),
        channels=torch.cat([kept, to_grid_tokens(F.pixel_unshuffle(mask, CELL))], dim=2),
    )


def traced_batch(lessons: list[Lesson], grid: Grid, random: Random) -> Batch:
    """Beside the noise: white edges on black, as Canny reads them."""
    fine, _ = draw([lesson.target for lesson in lessons], grid, TOKEN, samples=1)
    plain = batch_of(lessons, grid, random)
    return replace(plain, channels=to_tokens(_averaged(edges(fine, random))))


def resembling_batch(lessons: list[Lesson], grid: Grid, random: Random) -> Batch:
    """The reference stands for words, so it is a picture and no tokens."""
    plain = batch_of([replace(lesson, references=()) for lesson in lessons], grid, random)
    pictures, _ = draw([lesson.references[0] for lesson in lessons], grid, TOKEN, samples=1)
    return replace(plain, image_prompts=pictures)


def edges(pictures: Tensor, random: Random) -> Tensor:
    """(B, 3, H, W) in [-1, 1] to edges of 1 on -1, found the way the service finds them."""
    low, high = sorted((random.randint(30, 150), random.randint(100, 250)))
    found = [
        cv2.Canny(((picture + 1) * 127.5).round().byte().permute(1, 2, 0).numpy().copy(), low, high)
        for picture in pictures
    ]
    return (torch.from_numpy(np.stack(found))[:, None].float() / 127.5 - 1).expand(-1, 3, -1, -1)


def drawn_masks(lessons: list[Lesson], grid: Grid) -> Tensor:
    """(B, 1, H, W) of 0 and 1, 16 pixels a token."""
    height, width = (side * TOKEN for side in grid)
    return torch.stack([masked(lesson.mask, width, height) for lesson in lessons if lesson.mask])[:, None].float()


def _before_and_after(lessons: list[Lesson]) -> tuple[list[Scene], list[Scene]]:
    return [lesson.references[0] for lesson in lessons], [lesson.target for lesson in lessons]


def _averaged(fine: Tensor) -> Tensor:
    return F.avg_pool2d(fine, TOKEN // RESOLUTION)


def weights(covered: Tensor) -> Tensor:
    """(B, 1, H, W) of what is covered by things, to what each number of a token counts: (B, N, 48), 1 on average."""
    near = F.max_pool2d(covered, 3, stride=1, padding=1)
    weight = spread((1 + THING_WEIGHT * near).expand(-1, 3, -1, -1))
    return weight / weight.mean()


def _seen(scenes: list[Scene], grid: Grid) -> Tensor:
    tokens = to_tokens(draw(scenes, grid, RESOLUTION)[0])
    return tokens + torch.randn_like(tokens) * REFERENCE_NOISE


BUILDERS: Final[Mapping[str, Callable[[list[Lesson], Grid, Random], Batch]]] = MappingProxyType(
    {
        **dict.fromkeys(("fill", "erase", "extend"), masked_batch),
        "trace": traced_batch,
        "resemble": resembling_batch,
    }
)
"""For lessons that are more than words and references."""

MIXES: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        "flux3": {"tell": 0.34, "change": 0.26, "combine": 0.09, "lay out": 0.29, "anything": 0.02},
        "flux2": {"tell": 0.36, "change": 0.47, "combine": 0.14, "anything": 0.03},
        "flux1": {
            "tell": 0.27,
            "change": 0.27,
            "combine": 0.08,
            "fill": 0.1,
            "erase": 0.06,
            "extend": 0.06,
            "trace": 0.12,
            "resemble": 0.04,
            "anything": 0.03,
        },
        "flux": {"tell": 0.9, "resemble": 0.06, "anything": 0.04},
        "kontext": {"tell": 0.26, "change": 0.55, "combine": 0.15, "anything": 0.04},
        "fill": {"tell": 0.15, "fill": 0.5, "erase": 0.15, "extend": 0.2},
        "canny": {"tell": 0.2, "trace": 0.8},
    }
)
