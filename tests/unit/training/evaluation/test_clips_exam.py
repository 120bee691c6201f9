"""Ideal clips and sounds, through the written-down networks, must be right, and others wrong."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from training.evaluation import report
from training.evaluation.clips import ROWS, Clip, IdealClips, Question
from training.evaluation.exam import examine
from training.worlds.clips.judge import judge
from training.worlds.clips.scene import MOTIONS, Scene


@pytest.fixture(scope="module")
def painter() -> IdealClips:
    return IdealClips()


def ideal(painter: IdealClips, question: Question) -> Clip:
    [clip] = painter.paint([question], 0)
    assert isinstance(clip, Clip)
    return clip


@pytest.mark.parametrize("motion", MOTIONS)
def test_what_is_right_is_right_and_nothing_else(painter: IdealClips, motion: str) -> None:
    scene = Scene("square", "red", "white", motion)
    clip = ideal(painter, Question(scene, (4, 7), ""))
    assert all(judge(scene, clip.frames, clip.wave, clip.rate).values())
    silence = np.zeros_like(clip.wave)
    others = {
        "background": replace(scene, background="yellow"),
        "colour": replace(scene, colour="green"),
        "motion": replace(scene, motion=MOTIONS[MOTIONS.index(motion) - 1]),
    }
    for part, wrong in others.items():
        assert not judge(wrong, clip.frames, silence, clip.rate)[part]
    assert not judge(scene, clip.frames, silence, clip.rate)["pitch"]


def test_an_empty_canvas_is_wrong(painter: IdealClips) -> None:
    scene = Scene("square", "red", "white", "still")
    clip = ideal(painter, Question(scene, (4, 4), ""))
    given = judge(scene, clip.frames * 0 + 0.96, clip.wave, clip.rate)
    assert given == {"background": True, "colour": False, "motion": False, "pitch": True}


def test_every_row_asks_for_every_motion() -> None:
    for row in ROWS:
        first, second = (
            [row.ask(random, index) for index in range(len(MOTIONS))]
            for random in (Random(row.questions_seed), Random(row.questions_seed))
        )
        assert {question.scene.motion for question in first} == set(MOTIONS)
        assert first == second


def test_a_perfect_painter_passes_and_has_a_sheet(painter: IdealClips) -> None:
    results = examine(painter, ROWS, 1)
    assert {result.name: result.right for result in results} == {row.name: 1 for row in ROWS}
    assert report.sheet(results).startswith(b"\x89PNG")
    rows = {result.name: result.as_json() for result in results}
    assert "| first frame given | 1 | 100% |" in report.markdown({"ltx2": rows})
