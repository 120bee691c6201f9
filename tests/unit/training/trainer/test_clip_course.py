from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.bundle import copied

from training.lessons import clips as lessons
from training.trainer.__main__ import course_of, stored
from training.trainer.course import Course, Plan, write_state
from training.trainer.flow import times
from training.trainer.ltx2 import ClipStudent
from training.trainer.student import publish, published


@pytest.fixture(autouse=True)
def small_lessons(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lessons, "LENGTHS", {9: 1})
    monkeypatch.setattr(lessons, "TOKENS", 80)
    kept = torch.get_rng_state()
    yield
    torch.set_rng_state(kept)


def course(steps: int = 4) -> Course[Any]:
    torch.manual_seed(1)
    return course_of("ltx2", ClipStudent(), Plan(steps, batches=1))


def test_an_interrupted_course_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = list(course().run())
    broken = course()
    losses = broken.run()
    first = [next(losses), next(losses)]
    write_state(broken.state(), tmp_path / "ltx2.pt")
    again = course()
    again.resume(torch.load(tmp_path / "ltx2.pt", weights_only=False))
    assert first + list(again.run()) == pytest.approx(whole, rel=1e-3)


def test_everything_learns_but_what_is_never_used() -> None:
    learning = course(steps=3)
    before = {name: value.clone() for name, value in flat(learning).items()}
    list(learning.run())
    still = {name for name, value in flat(learning).items() if torch.equal(value, before[name])}
    assert all("vision_tower" in name or "multi_modal_projector" in name or "connector." in name for name in still)
    assert any(name.startswith("reading.") for name in before)


def flat(learning: Course[Any]) -> dict[str, torch.Tensor]:
    networks = learning.state()["networks"]
    return {f"{part}.{name}": value for part, network in networks.items() for name, value in network.items()}


def test_what_is_learnt_is_what_is_published(tmp_path: Path) -> None:
    copied("ltx2", tmp_path)
    list(course(steps=1).run(tmp_path / "state.pt"))
    student, step = stored("ltx2", tmp_path / "state.pt")
    publish(student, tmp_path / "checkpoints")
    again = ClipStudent()
    again.adopt(functools.partial(published, checkpoints=tmp_path / "checkpoints"))
    assert step == 1
    for name, network in student.networks().items():
        for key, value in again.networks()[name].state_dict().items():
            assert torch.equal(value, network.state_dict()[key].half().float()), key


def test_half_of_all_times_are_pure_noise() -> None:
    torch.manual_seed(0)
    drawn = times(4000, 3.0)
    assert drawn.min() >= 0
    assert 0.45 < (drawn == 1).float().mean() < 0.55
