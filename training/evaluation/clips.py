"""The exam in clips: what the video model is asked in the stock pipeline, and how it is graded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import numpy as np
import torch
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2ConditionPipeline, LTX2VideoCondition
from PIL import Image

from deployments.contract.clip import FPS
from training.build import sound
from training.build.bundle import CHECKPOINTS
from training.build.checkpoints import component
from training.build.video_autoencoder import CELL, LATENT_STD, PACE
from training.evaluation.exam import Grade, Row
from training.worlds.clips import outlines
from training.worlds.clips.captions import caption, motion_alone
from training.worlds.clips.drawing import frames, latents, tone_latents
from training.worlds.clips.judge import Frames, Wave, judge
from training.worlds.clips.scene import GRIDS, MOTIONS, Grid, Scene, random_scene
from training.worlds.pictures.drawing import in_pixels

FRAMES: Final = 121
"""Of a clip: a whole journey."""
STEPS: Final = 10
_OFF: Final = {"guidance_scale": 1.0, "guidance_rescale": 0.0, "stg_scale": 0.0, "modality_scale": 1.0}
PLAIN: Final[Mapping[str, Any]] = {
    **_OFF,
    **{f"audio_{name}": value for name, value in _OFF.items()},
    "spatio_temporal_guidance_blocks": None,
    "max_sequence_length": 64,
}
"""How the stock pipeline is to be called: one pass a step. Its defaults are four, for a model of 48 blocks."""
_BEGINNING: Final = 25
"""Frames that a clip goes on from."""
_FIRST_SEED: Final = 1_000_000
"""Beyond the seeds of training."""
_SHOWN: Final = 6
"""Frames of a clip."""


@dataclass(frozen=True, slots=True)
class Question:
    scene: Scene
    grid: Grid
    prompt: str
    given: tuple[tuple[int, int], ...] = ()
    """Which frames are given, as (first, how many)."""


@dataclass(frozen=True, slots=True)
class Clip:
    frames: Frames
    wave: Wave
    rate: int
    """Samples of the wave a second."""


class IdealClips:
    """What the autoencoders make of drawn clips."""

    def __init__(self) -> None:
        self._vae, self._audio_vae, self._vocoder = (
            component("ltx2", name) for name in ("vae", "audio_vae", "vocoder")
        )

    @torch.inference_mode()
    def paint(self, questions: Sequence[Question], first_seed: int) -> Iterator[Clip | str]:
        for question in questions:
            latent = latents([question.scene], question.grid, FRAMES)[0] * LATENT_STD
            shown = (self._vae.decode(latent, return_dict=False)[0][0].clamp(-1, 1) + 1) / 2
            tone = tone_latents([question.scene], question.grid, FRAMES) * sound.LATENT_STD
            wave = self._vocoder(self._audio_vae.decode(tone[:, None], return_dict=False)[0])[0, 0]
            yield Clip(shown.permute(1, 2, 3, 0).numpy(), wave.numpy(), sound.OUTPUT_RATE)


class ModelClips:
    """The checkpoint, in the stock pipeline."""

    def __init__(self) -> None:
        self._pipeline: Any = LTX2ConditionPipeline.from_pretrained(CHECKPOINTS / "ltx2", dtype=torch.float32)
        self._pipeline.set_progress_bar_config(disable=True)

    def paint(self, questions: Sequence[Question], first_seed: int) -> Iterator[Clip | str]:
        for number, question in enumerate(questions):
            rows, columns = question.grid
            made = self._pipeline(
                prompt=question.prompt,
                conditions=list(_conditions(question)) or None,
                width=columns * CELL,
                height=rows * CELL,
                num_frames=FRAMES,
                frame_rate=float(FPS),
                num_inference_steps=STEPS,
                generator=torch.Generator().manual_seed(first_seed + number),
                output_type="np",
                **PLAIN,
            )
            rate = self._pipeline.vocoder.config.output_sampling_rate
            yield Clip(made.frames[0], made.audio[0, 0].numpy(), rate)


def _conditions(question: Question) -> Iterator[LTX2VideoCondition]:
    if question.given:
        pixels = in_pixels(frames(question.scene, question.grid, FRAMES))
        for first, count in question.given:
            cell = 0 if first == 0 else (first - 1) // PACE + 1
            yield LTX2VideoCondition(frames=pixels[first : first + count], index=cell, strength=1.0, crf=0)


def _asking(grids: Sequence[Grid], given: tuple[tuple[int, int], ...]) -> Callable[[Random, int], Question]:
    def ask(random: Random, index: int) -> Question:
        scene = random_scene(random)
        while scene.motion != MOTIONS[index % len(MOTIONS)]:
            scene = random_scene(random)
        grid = random.choice(grids) if len(grids) > 1 else grids[0]
        told = motion_alone(scene, random) if given and index % 2 else caption(scene, random)
        return Question(scene, grid, told, given)

    return ask


def _grade(question: Question, clip: Clip) -> Grade:
    parts = judge(question.scene, clip.frames, clip.wave, clip.rate)
    faults = tuple(f"{part}: wrong" for part, right in parts.items() if not right)
    return Grade(all(parts.values()), parts, outlines.figures(question.scene.shape, clip.frames), faults)


def _show(question: Question, clip: Clip | None) -> tuple[str, Sequence[Image.Image]]:
    if clip is None:
        return question.prompt, []
    chosen = np.linspace(0, len(clip.frames) - 1, _SHOWN).round().astype(int)
    pixels = (clip.frames[chosen] * 255).round().astype(np.uint8)
    return question.prompt, [Image.fromarray(frame) for frame in pixels]


def _row(name: str, given: tuple[tuple[int, int], ...] = (), grids: Sequence[Grid] = GRIDS[:1]) -> Row[Question, Clip]:
    ask, seed = _asking(grids, given), f"exam of {name}"
    goals = {"mean IoU": 0.7}
    return Row(name, ("ltx2",), ask, _grade, _show, seed, _FIRST_SEED, goals, shown=len(MOTIONS))


ROWS: Final[tuple[Row[Question, Clip], ...]] = (
    _row("words alone, wide"),
    _row("words alone, other ratios", grids=GRIDS),
    _row("first frame given", ((0, 1),)),
    _row("first and last frame given", ((0, 1), (FRAMES - PACE, 1))),
    _row("goes on from a second", ((0, _BEGINNING),)),
)
