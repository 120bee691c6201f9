from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import video_inspection
from clip_jobs import FRAMES, JOB, a_backend, an_engine, events_of, ffmpeg_processes, made
from support.jobs import make_clip_job
from support.stages import encoded

from deployments.backend import Backend, OutOfMemory
from deployments.backends.video_checkpoints import LATENTS_TYPE, pack_latents
from deployments.backends.videos import ActiveClip, FetchedClip
from deployments.contract.events import Done, Event, Failed, Interrupted, Progress
from deployments.contract.job import GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.engine.loop import Engine
from deployments.engine.requests import RequestHandle
from deployments.families import ltx2_latents
from deployments.families.video_family import ClipFamily, Draft
from deployments.video import reader

pytestmark = pytest.mark.usefixtures("temporary")


GONE = "an input is no longer available"
REMAKE = "make it again"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"references": ("inputs/text",), "clip": {"times": (0.0,)}}, "an input picture cannot be read"),
        ({"clip": {"start": "inputs/gone"}}, GONE),
        ({"clip": {"start": "inputs/text"}}, "the video to go on from can't be read"),
        ({"clip": {"enhance": "inputs/nameless"}}, REMAKE),
        ({"clip": {"enhance": "inputs/foreign"}}, "the draft was made by another model: make it again"),
        ({"clip": {"enhance": "inputs/short"}}, "the draft was made by another model: make it again"),
    ],
)
def test_a_job_that_cannot_be_done_fails_with_a_plain_text(
    family: ClipFamily, store: ObjectStore, fields: dict[str, Any], text: str
) -> None:
    picture, sound = torch.zeros(1, 96, 3, 2, 3), torch.zeros(1, 1, 9, 16)
    for key, tensors, model in (
        ("inputs/nameless", {"picture": picture}, "m"),
        ("inputs/foreign", {"picture": picture, "sound": sound}, "another"),
        ("inputs/short", {"picture": picture[:, :, :2], "sound": sound}, "m"),
    ):
        store.put_blocking(key, pack_latents(tensors, {"model": model}), LATENTS_TYPE)
    failed = events_of(a_backend(family, store), make_clip_job(**fields))[-1]
    assert isinstance(failed, Failed), failed
    assert text in failed.reason


def test_a_job_beside_one_that_cannot_be_done_is_done(family: ClipFamily, store: ObjectStore) -> None:
    engine, good, bad = an_engine(a_backend(family, store)), list[Event](), list[Event]()
    engine.submit(make_clip_job(id="bad", clip={"start": "inputs/text", "checkpoint": "checkpoints/bad"}), bad.append)
    engine.submit(JOB, good.append)
    engine.run_until_idle()
    assert isinstance(bad[-1], Failed)
    assert isinstance(good[-1], Done)


def test_a_store_out_of_reach_is_no_fault_of_the_job(
    family: ClipFamily, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object) -> None:
        raise PermissionError("/srv/objects")

    with monkeypatch.context() as patched:
        patched.setattr(store, "get_blocking", down)
        last = events_of(a_backend(family, store), make_clip_job(clip={"start": "inputs/start"}))[-1]
    assert isinstance(last, Interrupted)
    assert not last.blame
    monkeypatch.setattr(store, "put_file_blocking", down)
    last = events_of(a_backend(family, store), JOB)[-1]
    assert isinstance(last, Interrupted)
    assert not last.blame


def test_a_clip_to_go_on_from_is_fetched_once(family: ClipFamily, store: ObjectStore, temporary: Path) -> None:
    engine, events = an_engine(a_backend(family, store)), list[Event]()
    engine.submit(make_clip_job(clip={"start": "inputs/start"}), events.append)
    engine.step_once()
    assert store.root is not None
    (store.root / "inputs" / "start").unlink()
    assert len(list(temporary.iterdir())) == 1
    engine.run_until_idle()
    assert isinstance(events[-1], Done)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that clips are written in several steps."""
    monkeypatch.setattr(ltx2_latents, "_MOST_LATENTS", 1)


def while_exporting(
    backend: Backend[FetchedClip, ActiveClip], job: GenerationJob
) -> tuple[Engine[FetchedClip, ActiveClip], RequestHandle, list[Event]]:
    engine, events = an_engine(backend), list[Event]()
    handle = engine.submit(job, events.append)
    while not ffmpeg_processes():
        assert engine.step_once()
    return engine, handle, events


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("clip", [{}, {"start": "inputs/start"}])
def test_a_clip_that_is_cancelled_while_it_is_written_leaves_nothing(
    family: ClipFamily, store: ObjectStore, temporary: Path, clip: dict[str, Any]
) -> None:
    engine, handle, events = while_exporting(a_backend(family, store), make_clip_job(clip=clip))
    assert list(temporary.iterdir())
    engine.cancel(handle)
    assert not ffmpeg_processes()
    assert not list(temporary.iterdir())
    engine.run_until_idle()
    assert engine.running == 0
    assert isinstance(events[-1], Progress)


@pytest.mark.usefixtures("small_chunks")
def test_an_engine_that_is_stopped_or_dropped_while_it_writes_leaves_nothing(
    family: ClipFamily, store: ObjectStore, temporary: Path
) -> None:
    engine, _, _ = while_exporting(a_backend(family, store), JOB)
    assert engine.stop()
    assert not ffmpeg_processes()
    assert not list(temporary.iterdir())
    engine, _, _ = while_exporting(a_backend(family, store), JOB)
    del engine, _
    assert not ffmpeg_processes()
    assert not list(temporary.iterdir())


@pytest.mark.usefixtures("small_chunks")
def test_an_ffmpeg_that_is_killed_costs_the_attempt_alone(
    family: ClipFamily, store: ObjectStore, temporary: Path
) -> None:
    engine, _, events = while_exporting(a_backend(family, store), JOB)
    for process in ffmpeg_processes():
        process.kill()
    engine.run_until_idle()
    last = events[-1]
    assert isinstance(last, Interrupted)
    assert last.blame
    assert not list(temporary.iterdir())


@pytest.mark.usefixtures("small_chunks")
def test_a_clip_that_ran_out_of_memory_while_it_was_written_begins_its_file_anew(
    family: ClipFamily, store: ObjectStore, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = a_backend(family, store)
    [state] = encoded(backend, [JOB])
    assert isinstance(state, ActiveClip)
    while not state.export or state.export.done < 1:
        backend.step([state])
    parts = state.parts

    def exhausted(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("too much")

    with monkeypatch.context() as patched:
        patched.setattr(ltx2_latents.ClipPictures, "_decode", exhausted)
        with pytest.raises(OutOfMemory):
            backend.step([state])
    assert not list(temporary.iterdir())
    assert state.done_steps == state.clip.steps
    for _ in range(parts):
        backend.step([state])
    data = store.get_blocking(backend.finish(state)().key)
    assert video_inspection.inspect(data).frames == FRAMES
    assert np.array_equal(
        video_inspection.decoded(data),
        video_inspection.decoded(store.get_blocking(made(a_backend(family, store), JOB).key)),
    )


def test_a_draft_that_ran_out_of_memory_at_its_end_is_finished_at_the_next_try(
    family: ClipFamily, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, failures = type(family).draft, iter([torch.OutOfMemoryError("too much")])

    def draft(*arguments: Any) -> Draft:
        for failure in failures:
            raise failure
        return whole(*arguments)

    monkeypatch.setattr(type(family), "draft", draft)
    output = made(a_backend(family, store), make_clip_job(clip={"draft": True}))
    assert output.draft is not None
    assert video_inspection.inspect(store.get_blocking(output.key)).frames == FRAMES


def test_the_device_waits_for_no_store_and_no_decoder(
    family: ClipFamily, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = a_backend(family, store)
    fetched = [backend.fetch(make_clip_job(clip={"start": "inputs/start"}))]

    def hangs(*of: object, **how: object) -> None:
        raise AssertionError("it would be waited for")

    for name in ("get_blocking", "put_blocking"):
        monkeypatch.setattr(ObjectStore, name, hangs)
    for name in ("probe", "sound", "last_frames", "frames"):
        monkeypatch.setattr(reader, name, hangs)
    [state] = backend.encode(fetched)
    assert isinstance(state, ActiveClip)
