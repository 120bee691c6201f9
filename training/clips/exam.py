"""Asks the bundled video model for clips that it never saw, and grades them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import numpy as np
import torch
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2ConditionPipeline, LTX2VideoCondition

from deployments.contract.clip import FPS
from training.build.analytic_video_vae import CELL, PACE
from training.build.build_ltx2 import FOLDER, PLAIN
from training.worlds.clips.captions import caption, motion_alone
from training.worlds.clips.drawing import frames
from training.worlds.clips.judge import Frames, Grade, grade
from training.worlds.clips.scene import GRIDS, MOTIONS, Grid, Scene, random_scene

FRAMES: Final = 121
"""Of a clip: a whole journey."""
STEPS: Final = 10
BEGINNING: Final = 25
"""Frames that a clip goes on from."""
_FIRST_SEED: Final = 1_000_000
"""Beyond the seeds of training."""


@dataclass(frozen=True, slots=True)
class Question:
    row: str
    scene: Scene
    grid: Grid
    prompt: str
    seed: int
    given: tuple[tuple[int, int], ...] = ()
    """Which frames are given, as (first, how many)."""


@dataclass(frozen=True, slots=True)
class Answer:
    question: Question
    frames: Frames
    grade: Grade


class Model:
    """The checkpoint, in the stock pipeline."""

    def __init__(self) -> None:
        self._pipeline: Any = LTX2ConditionPipeline.from_pretrained(FOLDER, dtype=torch.float32)
        self._pipeline.set_progress_bar_config(disable=True)

    def answer(self, question: Question) -> Answer:
        rows, columns = question.grid
        made = self._pipeline(
            prompt=question.prompt,
            conditions=list(_conditions(question)) or None,
            width=columns * CELL,
            height=rows * CELL,
            num_frames=FRAMES,
            frame_rate=float(FPS),
            num_inference_steps=STEPS,
            generator=torch.Generator().manual_seed(question.seed),
            output_type="np",
            **PLAIN,
        )
        shown, wave = made.frames[0], made.audio[0, 0].numpy()
        rate = self._pipeline.vocoder.config.output_sampling_rate
        return Answer(question, shown, grade(question.scene, shown, wave, rate))


def _conditions(question: Question) -> Iterator[LTX2VideoCondition]:
    if not question.given:
        return
    drawn = (frames(question.scene, question.grid, FRAMES) + 1) * 127.5
    pixels = drawn.round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
    for first, count in question.given:
        cell = 0 if first == 0 else (first - 1) // PACE + 1
        yield LTX2VideoCondition(frames=pixels[first : first + count], index=cell, strength=1.0, crf=0)


def questions(count: int) -> list[Question]:
    """`count` of each row; the same every time."""
    return [question for row in _ROWS for question in _of_row(row, count)]


_ROWS: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    "words alone, wide": (),
    "words alone, other ratios": (),
    "first frame given": ((0, 1),),
    "first and last frame given": ((0, 1), (FRAMES - PACE, 1)),
    "goes on from a second": ((0, BEGINNING),),
}
"""Rows, with the frames that are given in each."""


def _of_row(row: str, count: int) -> Iterator[Question]:
    random = Random(f"exam of {row}")
    given = _ROWS[row]
    for number in range(count):
        scene = random_scene(random)
        while scene.motion != MOTIONS[number % len(MOTIONS)]:
            scene = random_scene(random)
        grid = random.choice(GRIDS) if row == "words alone, other ratios" else GRIDS[0]
        told = motion_alone(scene, random) if given and number % 2 else caption(scene, random)
        yield Question(row, scene, grid, told, _FIRST_SEED + number, given)


def examine(asked: Sequence[Question], answer: Callable[[Question], Answer]) -> Iterator[Answer]:
    for question in asked:
        yield answer(question)


def share(grades: Sequence[Grade], part: str) -> float:
    """How many are right in a part (`background`, `colour`, `motion`, `pitch`), or in all (`right`)."""
    return float(np.mean([getattr(grade, part) for grade in grades]))
