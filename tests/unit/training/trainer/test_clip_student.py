"""What is learnt must be what the stock pipeline asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2ConditionPipeline, LTX2VideoCondition
from torch import Tensor

from training.build.bundle import CHECKPOINTS
from training.evaluation.clips import PLAIN
from training.lessons.clips import ClipBatch, clips, keyframe_coordinates
from training.trainer.ltx2 import ClipStudent
from training.trainer.student import published
from training.worlds.clips.drawing import frames
from training.worlds.clips.scene import Grid, Scene
from training.worlds.pictures.drawing import in_pixels

GRID: Grid = (4, 5)
FRAMES = 17
SCENE = Scene("circle", "red", "blue", "left")
PROMPT = "a red circle moves left on a blue background"


@pytest.fixture(scope="module")
def pipeline() -> Any:
    loaded = LTX2ConditionPipeline.from_pretrained(CHECKPOINTS / "ltx2", dtype=torch.float32)
    loaded.set_progress_bar_config(disable=True)
    return loaded


@pytest.fixture(scope="module")
def student() -> ClipStudent:
    learnt = ClipStudent()
    learnt.adopt(published)
    for network in learnt.networks().values():
        network.eval()
    return learnt


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def asked(pipeline: Any, conditions: list[LTX2VideoCondition]) -> tuple[dict[str, Any], tuple[Tensor, Tensor]]:
    """What the pipeline gives its transformer in its only step, and what it gets."""
    seen: list[Any] = []
    hook = pipeline.transformer.register_forward_hook(
        lambda module, inputs, named, output: seen.append((named, output)), with_kwargs=True
    )
    pipeline(
        prompt=PROMPT,
        conditions=conditions or None,
        width=GRID[1] * 32,
        height=GRID[0] * 32,
        num_frames=FRAMES,
        num_inference_steps=1,
        generator=torch.Generator().manual_seed(0),
        output_type="latent",
        **PLAIN,
    )
    hook.remove()
    [step] = seen
    return step


def given(batch: ClipBatch, first: bool, keyframes: Tensor, frame: int | None) -> ClipBatch:
    mask = torch.zeros_like(batch.given)
    mask[: GRID[0] * GRID[1]] = first
    coordinates = torch.zeros(3, 0, 2) if frame is None else keyframe_coordinates(GRID, frame)
    return replace(batch, given=mask, keyframes=keyframes, keyframe_coordinates=coordinates)


@pytest.mark.parametrize("indices", [(), (0,), (2,), (0, 1)])
def test_a_student_does_what_the_pipeline_asks_for(
    pipeline: Any, student: ClipStudent, indices: tuple[int, ...]
) -> None:
    pixels = in_pixels(frames(SCENE, GRID, FRAMES))
    starts = {0: 0, 1: 1, 2: 9}
    conditions = [
        LTX2VideoCondition(frames=np.asarray(pixels[starts[index]]), index=index, strength=1.0, crf=0)
        for index in indices
    ]
    inputs, (video, sound) = asked(pipeline, conditions)
    tokens, cells = inputs["hidden_states"], GRID[0] * GRID[1] * 3
    later = [starts[index] for index in indices if index]
    batch = given(clips([SCENE], [PROMPT], GRID, FRAMES), 0 in indices, tokens[:, cells:], *(later or [None]))
    told_video, told_sound = student.velocity(
        tokens[:, :cells], inputs["audio_hidden_states"], inputs["sigma"] / 1000, batch
    )
    assert torch.allclose(told_video, video[:, :cells], atol=1e-4)
    assert torch.allclose(told_sound, sound, atol=1e-4)


def test_given_frames_are_those_that_lessons_give(pipeline: Any) -> None:
    pixels = in_pixels(frames(SCENE, GRID, FRAMES))
    inputs, _ = asked(pipeline, [LTX2VideoCondition(frames=pixels, index=0, strength=1.0)])
    lesson = clips([SCENE], [PROMPT], GRID, FRAMES)
    assert (inputs["hidden_states"] - lesson.target).square().mean().sqrt() < 0.02
