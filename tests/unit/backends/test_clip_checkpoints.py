from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
import torch
from support.jobs import make_job
from torch import Tensor

from deployments.backends.video_checkpoints import LATENTS_TYPE, ClipCheckpoints, pack_latents
from deployments.contract.job import Clip
from deployments.contract.objects import ObjectStore
from deployments.families.canvas import Scale, shape_of
from deployments.families.video_family import ClipState, PromptEmbeds, Stream

KEY = "checkpoints/job"
STEPS = 4


def a_stream(tokens: int, channels: int) -> Stream:
    x = torch.randn(1, tokens, channels)
    return Stream(x, torch.zeros(1, tokens, 1), x.clone(), torch.zeros(1, 1, tokens, 2))


def a_state(tokens: int = 6) -> ClipState:
    """Before its first step."""
    return ClipState(
        job=make_job("job", steps=STEPS, clip=Clip(frames=9, checkpoint=KEY)),
        shape=shape_of(64, 64, lead=0, frames=9, scale=Scale(32, 8, 12.5), render_side=None),
        picture=a_stream(tokens, 8),
        sound=a_stream(5, 3),
        prompt=PromptEmbeds(torch.zeros(1, 2, 4), torch.zeros(1, 2, 4), torch.ones(1, 2)),
        sigmas=torch.linspace(1, 0, STEPS + 1),
        chunks=2,
    )


def step(state: ClipState) -> None:
    state.picture.x, state.sound.x, state.i = state.picture.x + 1, state.sound.x - 1, state.i + 1


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore("memory:///")


def resumed(store: ObjectStore, model: str = "m", **options: Any) -> tuple[ClipState, tuple[Tensor, Tensor]]:
    """A state that just began and may go on, and what it began with."""
    state = a_state(**options)
    began = state.picture.x, state.sound.x
    checkpoints = ClipCheckpoints(store, model)
    checkpoints.resume(state, checkpoints.read(KEY))
    return state, began


@pytest.mark.parametrize("steps", [1, STEPS])
def test_another_worker_goes_on_where_one_was_lost(store: ObjectStore, steps: int) -> None:
    lost, checkpoints = a_state(), ClipCheckpoints(store, "m")
    for _ in range(steps):
        step(lost)
        checkpoints.keep(lost)
        checkpoints.settle()
    state, _ = resumed(store)
    assert state.i == steps
    assert torch.equal(state.picture.x, lost.picture.x)
    assert torch.equal(state.sound.x, lost.sound.x)


def test_without_a_checkpoint_a_clip_begins(store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    state, began = resumed(store)
    assert state.i == 0
    assert state.picture.x is began[0]
    assert not caplog.records


def kept(model: str | None = "m", steps: str | None = "2", **tensors: Tensor) -> bytes:
    like = a_state()
    metadata = {name: value for name, value in (("model", model), ("steps", steps)) if value is not None}
    return pack_latents({"picture": like.picture.x, "sound": like.sound.x} | tensors, metadata)


@pytest.mark.parametrize(
    "data",
    [
        kept()[:-5],
        kept(model="another"),
        kept(model=None),
        kept(steps="two"),
        kept(steps="0"),
        kept(steps=str(STEPS + 1)),
        kept(picture=torch.zeros(1, 7, 8)),
        pack_latents({"picture": torch.zeros(1, 6, 8)}, {"model": "m", "steps": "2"}),
    ],
)
def test_a_checkpoint_that_is_of_no_use_is_passed_over(
    store: ObjectStore, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    store.put_blocking(KEY, data, LATENTS_TYPE)
    state, began = resumed(store)
    assert state.i == 0
    assert state.picture.x is began[0]
    assert state.sound.x is began[1]
    assert "job begins anew" in caplog.text


def test_the_checkpoints_of_the_tests_above_are_of_use_otherwise(store: ObjectStore) -> None:
    store.put_blocking(KEY, kept(), LATENTS_TYPE)
    assert resumed(store)[0].i == 2
    assert resumed(store, tokens=7)[0].i == 0


def down(*_: object) -> None:
    raise PermissionError("/srv/objects")


def test_a_store_out_of_reach_costs_checkpoints_alone(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "put_blocking", down)
    monkeypatch.setattr(store, "get_blocking", down)
    state, checkpoints = a_state(), ClipCheckpoints(store, "m")
    with caplog.at_level(logging.WARNING):
        assert checkpoints.read(KEY) is None
        for _ in range(2):
            step(state)
            checkpoints.keep(state)
            checkpoints.settle()
    assert state.i == 2
    assert "could not be kept" in caplog.text


def test_steps_do_not_wait_and_what_is_kept_is_of_one_step(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()
    put = store.put_blocking

    def slow(*arguments: Any) -> None:
        began.set()
        go_on.wait()
        put(*arguments)

    monkeypatch.setattr(store, "put_blocking", slow)
    state, checkpoints = a_state(), ClipCheckpoints(store, "m")
    step(state)
    first = state.picture.x
    checkpoints.keep(state)
    began.wait()
    for _ in range(2):
        step(state)
        checkpoints.keep(state)
    go_on.set()
    checkpoints.settle()
    again, _ = resumed(store)
    assert again.i == 1
    assert torch.equal(again.picture.x, first)
    checkpoints.keep(state)
    checkpoints.settle()
    assert resumed(store)[0].i == 3
