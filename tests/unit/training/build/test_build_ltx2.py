from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_layout import layout, size
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2ConditionPipeline, LTX2VideoCondition

from training.build.analytic_sound import OUTPUT_RATE
from training.build.build_ltx2 import FOLDER, PLAIN, build
from training.build.clip_words import TEXT_LENGTH, VOCABULARY
from training.build.vocabulary_clips import clip_words, learn


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rebuilt") / "ltx2"
    build(folder)
    return folder


@pytest.fixture(scope="module")
def pipeline() -> LTX2ConditionPipeline:
    loaded = LTX2ConditionPipeline.from_pretrained(FOLDER, dtype=torch.float32)
    loaded.set_progress_bar_config(disable=True)
    return loaded


def test_training_changes_nothing_but_the_numbers(rebuilt: Path) -> None:
    assert layout(FOLDER) == layout(rebuilt)


def test_it_is_small_enough_for_the_repository() -> None:
    assert size(FOLDER) < 6 * 2**20


def test_what_is_written_down_is_not_trained(rebuilt: Path) -> None:
    for component in ("vae", "audio_vae", "vocoder"):
        [stored] = (FOLDER / component).glob("*.safetensors")
        assert stored.read_bytes() == (rebuilt / component / stored.name).read_bytes()


def test_a_clip_has_frames_and_sound(pipeline: LTX2ConditionPipeline) -> None:
    made: Any = pipeline(
        prompt="a red circle moves left",
        width=160,
        height=128,
        num_frames=25,
        num_inference_steps=2,
        generator=torch.Generator().manual_seed(0),
        output_type="np",
        **PLAIN,
    )
    assert np.asarray(made.frames).shape == (1, 25, 128, 160, 3)
    assert np.isfinite(np.asarray(made.frames)).all()
    seconds = made.audio.shape[-1] / OUTPUT_RATE
    assert 25 / 24 - 0.08 < seconds < 25 / 24 + 0.08


def test_frames_that_are_given_are_shown(pipeline: LTX2ConditionPipeline) -> None:
    picture = np.full((128, 128, 3), (220, 30, 30), np.uint8)
    made: Any = pipeline(
        prompt="",
        conditions=[LTX2VideoCondition(frames=picture, index=0, strength=1.0, crf=0)],
        width=128,
        height=128,
        num_frames=9,
        num_inference_steps=2,
        generator=torch.Generator().manual_seed(0),
        output_type="np",
        **PLAIN,
    )
    assert np.abs(np.asarray(made.frames)[0, 0] * 255 - picture).max() < 2


@pytest.mark.parametrize("text", ["a red circle", "Größe ☀ 日本", "<tag> {json: 1}"])
def test_any_text_survives_the_tokenizer(text: str) -> None:
    words = clip_words()
    assert len(words) <= VOCABULARY
    assert words.decode(words(text)["input_ids"], skip_special_tokens=True) == text


@pytest.mark.parametrize("words", [learn(), clip_words()])
def test_words_of_the_moving_world_are_one_token_each(words: Any) -> None:
    said = "a red circle moves left on a blue background"
    assert len(words(said)["input_ids"]) == 1 + len(said.split())


def test_prompts_are_padded_on_the_left_and_never_empty() -> None:
    told = clip_words()([""], padding="max_length", max_length=TEXT_LENGTH)
    assert told["attention_mask"] == [[0] * (TEXT_LENGTH - 1) + [1]]
