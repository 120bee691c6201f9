"""Ideal clips and sounds, through the written-down networks, must be right, and others wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from training.build import analytic_sound, analytic_video_vae
from training.clips import evaluation, strips
from training.clips.exam import FRAMES, Answer, Question, questions, share
from training.worlds.clips.drawing import latents
from training.worlds.clips.judge import Grade, grade
from training.worlds.clips.scene import MOTIONS, Scene
from training.worlds.clips.tones import tone_latents


@pytest.fixture(scope="module")
def networks() -> tuple[torch.nn.Module, torch.nn.Module, torch.nn.Module]:
    return (
        analytic_video_vae.analytic_video_vae(),
        analytic_sound.analytic_audio_vae(),
        analytic_sound.analytic_vocoder(),
    )


Networks = tuple[torch.nn.Module, torch.nn.Module, torch.nn.Module]


def ideal(question: Question, networks: Networks) -> Answer:
    vae, audio_vae, vocoder = networks
    with torch.no_grad():
        latent = latents([question.scene], question.grid, FRAMES)[0] * analytic_video_vae.LATENT_STD
        clip = vae.decode(latent, return_dict=False)[0][0]  # type: ignore[operator]
        tone = tone_latents([question.scene], question.grid, FRAMES) * analytic_sound.LATENT_STD
        wave = vocoder(audio_vae.decode(tone[:, None], return_dict=False)[0])[0, 0].numpy()  # type: ignore[operator]
    shown = ((clip.clamp(-1, 1) + 1) / 2).permute(1, 2, 3, 0).numpy()
    return Answer(question, shown, grade(question.scene, shown, wave, analytic_sound.OUTPUT_RATE))


@pytest.mark.parametrize("motion", MOTIONS)
def test_what_is_right_is_right_and_nothing_else(networks: Networks, motion: str) -> None:
    scene = Scene("square", "red", "white", motion)
    answer = ideal(Question("", scene, (4, 7), "", 0), networks)
    assert answer.grade.right
    with torch.no_grad():
        silence = torch.zeros(analytic_sound.OUTPUT_RATE * 5).numpy()
    others = {
        "background": dataclasses.replace(scene, background="yellow"),
        "colour": dataclasses.replace(scene, colour="green"),
        "motion": dataclasses.replace(scene, motion=MOTIONS[MOTIONS.index(motion) - 1]),
    }
    for part, wrong in others.items():
        assert not getattr(grade(wrong, answer.frames, silence, analytic_sound.OUTPUT_RATE), part)
    assert not grade(scene, answer.frames, silence, analytic_sound.OUTPUT_RATE).pitch


def test_an_empty_canvas_is_wrong(networks: Networks) -> None:
    scene = Scene("square", "red", "white", "still")
    answer = ideal(Question("", scene, (4, 4), "", 0), networks)
    empty = answer.frames * 0 + 0.96
    given = grade(scene, empty, answer.frames[:, 0, 0, 0], 10)
    assert given.background
    assert not given.colour
    assert not given.motion


def test_every_row_asks_for_every_motion() -> None:
    asked = questions(len(MOTIONS))
    rows = {question.row for question in asked}
    for row in rows:
        assert {question.scene.motion for question in asked if question.row == row} == set(MOTIONS)
    assert asked == questions(len(MOTIONS))


def test_the_report_has_shares_and_a_sheet(networks: Networks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ideal:
        def answer(self, question: Question) -> Answer:
            return ideal(question, networks)

    monkeypatch.setattr(evaluation, "Model", Ideal)
    evaluation.main(["--count", "1", "--folder", str(tmp_path)])
    report = (tmp_path / "clips.md").read_text()
    assert "| first frame given | 1 | " in report
    assert (tmp_path / "clips.png").read_bytes().startswith(b"\x89PNG")


def test_shares_count_what_is_right() -> None:
    grades = [Grade(True, True, True, True), Grade(True, False, True, True)]
    assert share(grades, "right") == 0.5
    assert share(grades, "background") == 1
    assert strips.PARTS == ("background", "colour", "motion", "pitch")
