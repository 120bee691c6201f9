from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2ConditionPipeline, LTX2VideoCondition

from training.build.bundle import CHECKPOINTS
from training.build.sound import OUTPUT_RATE
from training.evaluation.clips import PLAIN


@pytest.fixture(scope="module")
def pipeline() -> LTX2ConditionPipeline:
    loaded = LTX2ConditionPipeline.from_pretrained(CHECKPOINTS / "ltx2", dtype=torch.float32)
    loaded.set_progress_bar_config(disable=True)
    return loaded


def painted(pipeline: LTX2ConditionPipeline, width: int, frames: int, **asked: Any) -> Any:
    return pipeline(
        width=width,
        height=128,
        num_frames=frames,
        num_inference_steps=2,
        generator=torch.Generator().manual_seed(0),
        output_type="np",
        **asked,
        **PLAIN,
    )


def test_a_clip_has_frames_and_sound(pipeline: LTX2ConditionPipeline) -> None:
    made = painted(pipeline, 160, 25, prompt="a red circle moves left")
    assert np.asarray(made.frames).shape == (1, 25, 128, 160, 3)
    assert np.isfinite(np.asarray(made.frames)).all()
    seconds = made.audio.shape[-1] / OUTPUT_RATE
    assert 25 / 24 - 0.08 < seconds < 25 / 24 + 0.08


def test_frames_that_are_given_are_shown(pipeline: LTX2ConditionPipeline) -> None:
    picture = np.full((128, 128, 3), (220, 30, 30), np.uint8)
    given = LTX2VideoCondition(frames=picture, index=0, strength=1.0, crf=0)
    made = painted(pipeline, 128, 9, prompt="", conditions=[given])
    assert np.abs(np.asarray(made.frames)[0, 0] * 255 - picture).max() < 2
