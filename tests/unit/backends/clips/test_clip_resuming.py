from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import video_inspection
from clip_jobs import (
    CHECKPOINT,
    STEPS,
    a_backend,
    a_picture,
    made,
    png,
)
from support.jobs import make_clip_job
from support.stages import encoded

from deployments.backends.videos import ActiveClip, ClipBackend
from deployments.contract.job import GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.families.video_family import ClipFamily

pytestmark = pytest.mark.usefixtures("temporary")


class SteppedStore(ObjectStore):
    """Says when a checkpoint has been written."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.kept = threading.Semaphore(0)

    def put_blocking(self, key: str, data: bytes, content_type: str) -> None:
        super().put_blocking(key, data, content_type)
        if key == CHECKPOINT:
            self.kept.release()


def stepped(backend: ClipBackend, store: SteppedStore, job: GenerationJob, steps: int) -> None:
    """Takes the first steps, of which each is kept; then all but the store is lost."""
    [state] = encoded(backend, [job])
    assert isinstance(state, ActiveClip)
    for _ in range(steps):
        backend.step([state])
        store.kept.acquire()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "fields"), [(1, {}), (2, {"start": "inputs/start"}), (STEPS, {}), (2, {"times": (0.5,)})]
)
def test_another_worker_makes_the_very_clip_that_one_was_lost_with(
    family: ClipFamily, store: ObjectStore, tmp_path: Path, start: bytes, steps: int, fields: dict[str, Any]
) -> None:
    job = make_clip_job(references=("inputs/picture",) if "times" in fields else (), clip={"draft": True, **fields})
    whole = made(a_backend(family, store), job)
    assert whole.draft is not None
    other = SteppedStore((tmp_path / "other").as_uri())
    other.put_blocking("inputs/start", start, "video/mp4")
    other.put_blocking("inputs/picture", png(a_picture()), "image/png")
    stepped(a_backend(family, other), other, job, steps)
    backend, second = a_backend(family, other), replace(job, attempt=2, output_prefix="results/job/2")
    [state] = encoded(backend, [second])
    assert isinstance(state, ActiveClip)
    assert state.clip.i == steps
    resumed = made(backend, second)
    assert resumed.draft is not None
    assert other.get_blocking(resumed.draft) == store.get_blocking(whole.draft)
    files = [place.get_blocking(output.key) for place, output in ((store, whole), (other, resumed))]
    assert np.array_equal(video_inspection.decoded(files[0]), video_inspection.decoded(files[1]))


def test_no_checkpoint_is_written_any_more_when_a_clip_is_stored(
    family: ClipFamily, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, put_file = store.put_blocking, store.put_file_blocking
    stored, order = threading.Event(), list[str]()

    def slow(key: str, data: bytes, content_type: str) -> None:
        stored.wait(0.5)  # in vain, unless a clip is stored although this is on its way
        put(key, data, content_type)
        order.append(key)

    def storing(key: str, file: Path, content_type: str) -> None:
        order.append(key)
        stored.set()
        put_file(key, file, content_type)

    monkeypatch.setattr(store, "put_blocking", slow)
    monkeypatch.setattr(store, "put_file_blocking", storing)
    made(a_backend(family, store), make_clip_job(steps=1))
    assert order == [CHECKPOINT, "results/job/1/clip.mp4", "results/job/1/thumbnail.jpeg"]
