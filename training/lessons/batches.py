"""Lessons with pictures as tensors: what a model gets to see, and what it should answer.

A token is 16 x 16 pixels. The encoder of the autoencoders is exact arithmetic (`picture_autoencoder`): 4 x 4 pixels are
averaged, and the 4 x 4 averages of a token are its 16 numbers per colour. So a picture that is drawn with 4 pixels per
token and side already holds its latents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

import cv2
import numpy as np
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor

from deployments.families.canvas import grid_for
from deployments.families.flux1_latents import CELL
from deployments.families.flux1_latents import to_tokens as to_grid_tokens
from training.build.picture_autoencoder import LATENT_STD
from training.lessons.lesson import Lesson
from training.lessons.pictures import LESSONS, tell
from training.rewriter.prompts import details
from training.worlds import palette, shapes
from training.worlds.pictures.drawing import covers, draw, in_pixels, layers, masked
from training.worlds.pictures.scene import CANVAS_SIDE, TOKEN, Grid, Scene
from training.worlds.vocabulary import SIZES

BATCH: Final = 8
"""Pictures, usually: what a layer of a bundled model makes of so few stays in a core's cache."""

RATIOS: Final = (
    *((1, 1), (4, 3), (3, 4), (3, 2), (2, 3), (16, 9), (9, 16)),
    *((21, 9), (9, 21), (2, 1), (1, 2), (5, 4), (4, 5)),
    *((3, 1), (1, 3), (4, 1), (1, 4)),
)
"""Widths and heights that are practised, up to the most elongated canvas."""
SQUARE: Final = 0.25
OTHER_GRID: Final = 0.1
"""How often one of several references has another shape than the picture."""

ALONE, ALL = 0.15, 0.4
"""Parts of a course: up to the first only text to image is learnt, which all other kinds need, from the second on
everything. Outlines take longest to learn, and take least time where there are no references."""

DETAILED: Final = 0.2
"""How many prompts have been through a rewriter, which adds details that mean nothing here."""
_DETAILS: Final = tuple(sorted(details()))

RESOLUTION: Final = 4
"""Averages per token and side."""
THING_WEIGHT: Final = 4.0
"""How much more things and their outlines count, here and in references, than the background, which would drown them
by its size."""
REFERENCE_NOISE: Final = 0.03
"""Clients send pictures that went through a decoder and a file format."""

CLASSES: Final = (1 + len(shapes.NAMES), 1 + len(palette.NAMES), 1 + len(SIZES), 3)
"""Of a token: shape, colour and size of the thing there, and whether that is in the target; 0 is no thing."""
UNKNOWN: Final = -100
"""A label that is not asked for."""
_COVERED: Final = 0.25
"""Part of a token from which on it shows a thing."""

MIXES: Final[Mapping[str, Mapping[str, float]]] = yaml.safe_load(Path(__file__).with_name("mixes.yaml").read_text())
"""How often each kind of lesson is practised, by model."""


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
    """(4, B, N + M): the classes of its tokens."""


def practice(mix: Mapping[str, float], size: int, random: Random, done: float) -> Batch:
    """A batch of one kind of lesson, on one canvas, for a course of which that part, in [0, 1), is done."""
    others = min(max((done - ALONE) / (ALL - ALONE), 0.0), 1.0)
    kind = random.choices(tuple(mix), [share if kind == "tell" else others * share for kind, share in mix.items()])[0]
    grid = random_grid(random, long=kind == "tell")
    lessons = (
        _tellings(grid, size, random) if kind == "tell" else [LESSONS[kind](random, grid, False) for _ in range(size)]
    )
    return BUILDERS.get(kind, batch_of)(lessons, grid, random)


def outlined_practice(size: int, random: Random) -> Batch:
    """Ordinary prompts; the pictures are outlined."""
    grid = random_grid(random)
    lessons = [tell(random, grid) for _ in range(size)]
    outlined, _ = draw([lesson.target for lesson in lessons], grid, RESOLUTION, outlined=True)
    return replace(batch_of(lessons, grid, random), target=to_tokens(outlined))


def random_grid(random: Random, *, long: bool = False) -> Grid:
    """Long ones more often if they shall be, which words alone can afford; else less often: they take longer."""
    elongations = [max(ratio) / min(ratio) for ratio in RATIOS]
    shares = elongations if long else [1 / math.sqrt(elongation) for elongation in elongations]
    ratio = (1, 1) if random.random() < SQUARE else random.choices(RATIOS, shares)[0]
    return grid_for(*ratio, CANVAS_SIDE)


def _tellings(grid: Grid, size: int, random: Random) -> list[Lesson]:
    """Of about the same length: a batch takes as long as its longest prompt."""
    things = random.choices((0, 1, 2, 3), (1, 12, 7, 2))[0]
    lessons = [tell(random, grid, things=things) for _ in range(size)]
    if random.random() >= DETAILED:
        return lessons
    details = (random.sample(_DETAILS, random.randint(1, 4)) for _ in lessons)
    return [
        replace(lesson, prompt=", ".join([lesson.prompt, *few])) for lesson, few in zip(lessons, details, strict=True)
    ]


def batch_of(lessons: Sequence[Lesson], grid: Grid, random: Random) -> Batch:
    targets = [lesson.target for lesson in lessons]
    target, covered = draw(targets, grid, RESOLUTION)
    references, grids, read = [], [], [labels(targets, grid)]
    for scenes in map(list, zip(*(lesson.references for lesson in lessons), strict=True)):
        other = random_grid(random)
        # One picture's edits keep its shape, so that positions stay what they were.
        odd = len(lessons[0].references) > 1 and random.random() < OTHER_GRID
        seen = other if odd and all(scene.fits(other) for scene in scenes) else grid
        reference, there = draw(scenes, seen, RESOLUTION)
        if seen == grid:  # What is gone counts as much as what is there.
            covered = torch.maximum(covered, there)
        tokens = to_tokens(reference)
        references.append(tokens + torch.randn_like(tokens) * REFERENCE_NOISE)
        grids.append(seen)
        read.append(labels(scenes, seen, targets))
    return Batch(
        prompts=tuple(lesson.read for lesson in lessons),
        grid=grid,
        target=to_tokens(target),
        weight=_weights(covered),
        references=tuple(references),
        reference_grids=tuple(grids),
        labels=torch.cat(read, dim=2),
    )


def masked_batch(lessons: Sequence[Lesson], grid: Grid, random: Random) -> Batch:
    """Beside the noise: the picture without its masked part, and the mask, as Fill reads them."""
    before, _ = draw([lesson.references[0] for lesson in lessons], grid, TOKEN, samples=1)
    after, covered = draw([lesson.target for lesson in lessons], grid, TOKEN, samples=1)
    mask = drawn_masks(lessons, grid)
    return Batch(
        prompts=tuple(lesson.read for lesson in lessons),
        grid=grid,
        target=to_tokens(_averaged(torch.lerp(before, after, mask))),
        weight=_weights(_averaged(torch.maximum(covered * mask, 0.5 * mask))),
        channels=torch.cat(
            [to_tokens(_averaged(before * (1 - mask))), to_grid_tokens(F.pixel_unshuffle(mask, CELL))], dim=2
        ),
    )


def traced_batch(lessons: Sequence[Lesson], grid: Grid, random: Random) -> Batch:
    """Beside the noise: white edges on black, as Canny reads them."""
    fine, _ = draw([lesson.target for lesson in lessons], grid, TOKEN, samples=1)
    plain = batch_of(lessons, grid, random)
    return replace(plain, channels=to_tokens(_averaged(edges(fine, random))))


def resembling_batch(lessons: Sequence[Lesson], grid: Grid, random: Random) -> Batch:
    """The reference stands for words, so it is a picture and no tokens."""
    plain = batch_of([replace(lesson, references=()) for lesson in lessons], grid, random)
    pictures, _ = draw([lesson.references[0] for lesson in lessons], grid, TOKEN, samples=1)
    return replace(plain, image_prompts=pictures)


BUILDERS: Final[Mapping[str, Callable[[Sequence[Lesson], Grid, Random], Batch]]] = {
    **dict.fromkeys(("fill", "erase", "extend"), masked_batch),
    "trace": traced_batch,
    "resemble": resembling_batch,
}
"""For lessons that are more than words and references."""


def labels(scenes: Sequence[Scene], grid: Grid, targets: Sequence[Scene] | None = None) -> Tensor:
    """(4, B, rows x columns) of what `scenes` show; of references when there are `targets`."""
    shown = torch.zeros(len(CLASSES), len(scenes), grid[0] * grid[1], dtype=torch.long)
    if targets is None:
        shown[-1] = UNKNOWN
    for members, things in layers(scenes):
        covered = F.avg_pool2d(covers(things, grid, RESOLUTION), RESOLUTION).flatten(1) > _COVERED
        told = [
            [1 + shapes.NAMES.index(thing.shape) for thing in things],
            [1 + palette.NAMES.index(thing.colour) for thing in things],
            [UNKNOWN if thing.box else 1 + tuple(SIZES).index(thing.size) for thing in things],
        ]
        if targets is not None:
            told.append([1 + (t in targets[index].things) for index, t in zip(members, things, strict=True)])
        for kind, of_things in enumerate(told):
            shown[kind, members] = torch.where(covered, torch.tensor(of_things)[:, None], shown[kind, members])
    return shown


def edges(pictures: Tensor, random: Random) -> Tensor:
    """(B, 3, H, W) in [-1, 1] to edges of 1 on -1, found the way the service finds them."""
    low, high = sorted((random.randint(30, 150), random.randint(100, 250)))
    found = np.stack([cv2.Canny(pixels, low, high) for pixels in in_pixels(pictures)])
    return (torch.from_numpy(found)[:, None].float() / 127.5 - 1).expand(-1, 3, -1, -1)


def drawn_masks(lessons: Sequence[Lesson], grid: Grid) -> Tensor:
    """(B, 1, H, W) of 0 and 1, 16 pixels a token."""
    height, width = (side * TOKEN for side in grid)
    return torch.stack([masked(lesson.mask, width, height) for lesson in lessons if lesson.mask])[:, None].float()


def to_tokens(picture: Tensor) -> Tensor:
    """(B, 3, 4 rows, 4 columns) in [-1, 1] to (B, rows x columns, 48), ordered as the pipelines pack them."""
    return _spread(picture) / LATENT_STD


def _spread(picture: Tensor) -> Tensor:
    """(B, C, 4 rows, 4 columns) to (B, rows x columns, 16 C): the values themselves, in the order of the latents."""
    return F.pixel_unshuffle(F.pixel_unshuffle(picture, 2), 2).flatten(2).transpose(1, 2)


def _averaged(fine: Tensor) -> Tensor:
    return F.avg_pool2d(fine, TOKEN // RESOLUTION)


def _weights(covered: Tensor) -> Tensor:
    """(B, 1, H, W) of what is covered by things, to what each number of a token counts: (B, N, 48), 1 on average."""
    near = F.max_pool2d(covered, 3, stride=1, padding=1)
    weight = _spread((1 + THING_WEIGHT * near).expand(-1, 3, -1, -1))
    return weight / weight.mean()
