from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import video_inspection
from support.jobs import encode_jobs, make_video_job
from video_jobs import FRAMES, JOB, collect_events, ffmpeg_processes, generate, make_backend, make_engine

from deployments.backend import Backend, OutOfMemory
from deployments.backends.video_checkpoints import LATENTS_TYPE, pack_latents
from deployments.backends.videos import ActiveVideo, FetchedVideo
from deployments.contract.events import Done, Event, Failed, Interrupted, Progress
from deployments.contract.job import GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.engine.loop import Engine
from deployments.engine.requests import RequestHandle
from deployments.families import ltx2_latents
from deployments.families.ltx2_latents import VideoLatents
from deployments.families.video_family import DraftLatents, VideoFamily
from deployments.video import reader

pytestmark = pytest.mark.usefixtures("temporary")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"references": ("inputs/text",), "video": {"times": (0.0,)}}, "an input image cannot be read"),
        ({"start_video": "inputs/gone"}, "an input is no longer available"),
        ({"start_video": "inputs/text"}, "the video to go on from can't be read"),
        ({"draft": "inputs/nameless"}, "make it again"),
        ({"draft": "inputs/foreign"}, "the draft was made by another model: make it again"),
        ({"draft": "inputs/short"}, "the draft was made by another model: make it again"),
    ],
)
def test_invalid_job_fails_with_a_reason(
    family: VideoFamily, store: ObjectStore, fields: dict[str, Any], text: str
) -> None:
    video, audio = torch.zeros(1, 96, 3, 2, 3), torch.zeros(1, 1, 9, 16)
    for key, tensors, model in (
        ("inputs/nameless", {"video": video}, "m"),
        ("inputs/foreign", {"video": video, "audio": audio}, "another"),
        ("inputs/short", {"video": video[:, :, :2], "audio": audio}, "m"),
    ):
        store.put_blocking(key, pack_latents(tensors, {"model": model}), LATENTS_TYPE)
    failed = collect_events(make_backend(family, store), make_video_job(**fields))[-1]
    assert isinstance(failed, Failed), failed
    assert text in failed.reason


@pytest.mark.parametrize("call", ["get_blocking", "put_file_blocking"])
def test_unreachable_store_is_not_the_jobs_fault(
    family: VideoFamily, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def down(*_: object) -> None:
        raise PermissionError("/srv/objects")

    fields: dict[str, Any] = {"start_video": "inputs/start"} if call == "get_blocking" else {}
    job = make_video_job(**fields)
    monkeypatch.setattr(store, call, down)
    last = collect_events(make_backend(family, store), job)[-1]
    assert isinstance(last, Interrupted)
    assert not last.blame


def test_start_video_is_fetched_once(family: VideoFamily, store: ObjectStore, temporary: Path) -> None:
    engine, events = make_engine(make_backend(family, store)), list[Event]()
    engine.submit(make_video_job(start_video="inputs/start"), events.append)
    engine.step_once()
    assert store.root is not None
    (store.root / "inputs" / "start").unlink()
    assert len(list(temporary.iterdir())) == 1
    engine.run_until_idle()
    assert isinstance(events[-1], Done)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes videos take several steps to write."""
    monkeypatch.setattr(ltx2_latents, "_MAX_CHUNK", 1)


def run_until_export(
    backend: Backend[FetchedVideo, ActiveVideo], job: GenerationJob
) -> tuple[Engine[FetchedVideo, ActiveVideo], RequestHandle, list[Event]]:
    engine, events = make_engine(backend), list[Event]()
    handle = engine.submit(job, events.append)
    while not ffmpeg_processes():
        assert engine.step_once()
    return engine, handle, events


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("start_video", [None, "inputs/start"])
def test_cancelled_export_leaves_nothing(
    family: VideoFamily, store: ObjectStore, temporary: Path, start_video: str | None
) -> None:
    engine, handle, events = run_until_export(make_backend(family, store), make_video_job(start_video=start_video))
    assert list(temporary.iterdir())
    engine.cancel(handle)
    assert not ffmpeg_processes()
    assert not list(temporary.iterdir())
    engine.run_until_idle()
    assert engine.running == 0
    assert isinstance(events[-1], Progress)


@pytest.mark.usefixtures("small_chunks")
def test_stopped_engine_leaves_no_export(family: VideoFamily, store: ObjectStore, temporary: Path) -> None:
    for stops in (True, False):
        engine, _, _ = run_until_export(make_backend(family, store), JOB)
        assert not stops or engine.stop()
        del engine, _
        assert not ffmpeg_processes()
        assert not list(temporary.iterdir())


@pytest.mark.usefixtures("small_chunks")
def test_killed_ffmpeg_fails_only_the_attempt(family: VideoFamily, store: ObjectStore, temporary: Path) -> None:
    engine, _, events = run_until_export(make_backend(family, store), JOB)
    for process in ffmpeg_processes():
        process.kill()
    engine.run_until_idle()
    last = events[-1]
    assert isinstance(last, Interrupted)
    assert last.blame
    assert not list(temporary.iterdir())


@pytest.mark.usefixtures("small_chunks")
def test_out_of_memory_in_export_restarts_the_file(
    family: VideoFamily, store: ObjectStore, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = make_backend(family, store)
    [state] = encode_jobs(backend, [JOB])
    assert isinstance(state, ActiveVideo)
    while not state.export or state.export.done < 1:
        backend.step([state])
    parts = state.parts

    def exhaust(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("too much")

    with monkeypatch.context() as patched:
        patched.setattr(VideoLatents, "_decode", exhaust)
        with pytest.raises(OutOfMemory):
            backend.step([state])
    assert not list(temporary.iterdir())
    assert state.done_steps == state.video.steps
    for _ in range(parts):
        backend.step([state])
    data = store.get_blocking(backend.finish(state)().key)
    assert video_inspection.inspect(data).frames == FRAMES
    assert np.array_equal(
        video_inspection.decode_frames(data),
        video_inspection.decode_frames(store.get_blocking(generate(make_backend(family, store), JOB).key)),
    )


def test_out_of_memory_in_draft_is_retried(
    family: VideoFamily, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, failures = type(family).draft, iter([torch.OutOfMemoryError("too much")])

    def draft(*arguments: Any) -> DraftLatents:
        for failure in failures:
            raise failure
        return whole(*arguments)

    monkeypatch.setattr(type(family), "draft", draft)
    output = generate(make_backend(family, store), make_video_job(video={"draft": True}))
    assert output.draft is not None
    assert video_inspection.inspect(store.get_blocking(output.key)).frames == FRAMES


def test_device_waits_for_no_store_or_decoder(
    family: VideoFamily, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = make_backend(family, store)
    fetched = [backend.fetch(make_video_job(start_video="inputs/start"))]

    def hangs(*args: object, **how: object) -> None:
        raise AssertionError("the device waited for this call")

    for name in ("get_blocking", "put_blocking"):
        monkeypatch.setattr(ObjectStore, name, hangs)
    for name in ("probe", "audio", "last_frames", "frames"):
        monkeypatch.setattr(reader, name, hangs)
    [state] = backend.encode(fetched)
    assert isinstance(state, ActiveVideo)
