"""Tiny diffusers pipelines, and jobs that run on them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from PIL import Image
from support.jobs import make_job
from support.tiny_pipelines import build

from deployments.backends.diffusers import DiffusersBackend
from deployments.contract.events import Done, Event
from deployments.contract.job import GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.contract.request import VideoParams
from deployments.diffusers_loading import image_processor
from deployments.engine.loop import Engine

VIDEOS = frozenset(("wan-t2v", "wan-i2v", "hunyuan-video", "ltx2", "framepack"))
EDITS = frozenset(("qwen-image-edit", "qwen-image-edit-plus", "wan-i2v", "framepack"))


def build_once(folder: Path, name: str) -> Path:
    place = folder / name
    return place if place.exists() else build(name, place)


def load_stock(folder: Path, name: str) -> Any:
    place = build_once(folder, name)
    return DiffusionPipeline.from_pretrained(str(place), **image_processor(place))


def job_for(name: str, number: int = 0, **fields: Any) -> GenerationJob:
    """Returns a job of two steps for the pipeline `name`; `number` changes its prompt and seed."""
    own: dict[str, Any] = {"prompt": f"{number + 1} red circles", "seed": number, "steps": 2}
    if name in EDITS:
        own["references"] = ("inputs/a",)
    if name in VIDEOS:
        own |= {"output_format": "mp4", "video": VideoParams(frames=5, fps=16)}
    return make_job(f"{name}-{number}", **own | fields)


def make_engine(backend: DiffusersBackend) -> Engine[Any, Any]:
    return Engine(backend, max_running=16, max_batch=8, batching=backend)


def run_together(backend: DiffusersBackend, *jobs: GenerationJob) -> list[list[Event]]:
    """Runs jobs together. Returns the events of each."""
    engine = make_engine(backend)
    events: list[list[Event]] = [[] for _ in jobs]
    for job, listed in zip(jobs, events, strict=True):
        engine.submit(job, listed.append)
    engine.run_until_idle()
    return events


def run_job(backend: DiffusersBackend, job: GenerationJob, cancel_after: int | None = None) -> list[Event]:
    """Runs a job alone, cancelled after a number of rounds. Returns its events."""
    engine, events, rounds = make_engine(backend), list[Event](), 0
    handle = engine.submit(job, events.append)
    while engine.step_once():
        rounds += 1
        if rounds == cancel_after:
            engine.cancel(handle)
            break
    return events


def read_result(store: ObjectStore, events: list[Event]) -> bytes:
    assert isinstance(events[-1], Done), events[-1]
    return store.get_blocking(events[-1].output.key)


def read_image(store: ObjectStore, events: list[Event]) -> np.ndarray:
    with Image.open(io.BytesIO(read_result(store, events))) as image:
        return np.asarray(image)
