from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.jobs import change_job, make_job
from support.video_inspection import inspect
from support.virtual_backend import Listener

from deployments.backends.simulated import SimulatedBackend, SimulatedModel
from deployments.contract.events import Done, Event, Failed, Interrupted
from deployments.contract.job import GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.contract.request import VideoParams
from deployments.engine.loop import Engine


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore((tmp_path / "objects").as_uri())


@pytest.fixture
def engine(store: ObjectStore) -> Engine:
    return Engine(SimulatedBackend(SimulatedModel(0.0), store), max_running=8, max_batch=8)


def last(engine: Engine, job: GenerationJob) -> Event:
    listener = Listener()
    engine.submit(job, listener)
    engine.run_until_idle()
    return listener.events[-1]


@pytest.mark.parametrize(
    ("checkpoint", "simulation"),
    [
        ("simulated/25ms", SimulatedModel(0.025)),
        ("simulated/25ms?breaks=/tmp/now", SimulatedModel(0.025, Path("/tmp/now"))),
        ("simulated/25ms?breaks=", None),
        ("simulated/25", None),
        ("bundled/flux3", None),
    ],
)
def test_checkpoint_name_sets_the_simulation(checkpoint: str, simulation: SimulatedModel | None) -> None:
    assert SimulatedModel.from_checkpoint(checkpoint) == simulation


def test_file_breaks_one_replica_permanently(tmp_path: Path, store: ObjectStore) -> None:
    breaks = tmp_path / "breaks"
    broken, healthy = (
        Engine(SimulatedBackend(SimulatedModel(0.0, breaks), store), max_running=8, max_batch=8) for _ in range(2)
    )
    breaks.touch()
    for name, engine, outcome in (("a", broken, Interrupted), ("b", broken, Interrupted), ("c", healthy, Done)):
        assert isinstance(last(engine, make_job(name)), outcome), name
    assert (broken.health.broken, healthy.health.broken) == (True, False)


def test_seed_determines_the_images_colour(engine: Engine, store: ObjectStore) -> None:
    colours = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        event = last(engine, make_job(name, size=48, seed=seed))
        assert isinstance(event, Done)
        pixels = np.asarray(Image.open(io.BytesIO(store.get_blocking(event.output.key))))
        assert pixels.shape == (48, 48, 3)
        assert (pixels == pixels[0, 0]).all()
        colours.append(tuple(pixels[0, 0]))
    assert colours[0] == colours[1] != colours[2]


@pytest.mark.parametrize(("audio", "draft"), [(True, False), (False, True)])
def test_video_has_the_requested_frames(engine: Engine, store: ObjectStore, audio: bool, draft: bool) -> None:
    video = VideoParams(frames=30, audio=audio, draft=draft)
    event = last(engine, change_job(make_job("a"), video=video, output_format="mp4"))
    assert isinstance(event, Done)
    report = inspect(store.get_blocking(event.output.key))
    assert (report.frames, report.audio_codec is not None) == (30, audio)
    assert (event.output.draft is not None) == draft


def test_missing_input_fails_the_job(engine: Engine) -> None:
    assert isinstance(last(engine, make_job("edit", references=("inputs/gone.png",))), Failed)
