"""Jobs with defaults that are quick to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from deployments.backend import Backend, JobError, StateLike
from deployments.contract.job import GenerationJob, InputKeys
from deployments.contract.request import ResolvedRequest, VideoParams

_REQUEST = frozenset(field.name for field in fields(ResolvedRequest))
_INPUTS = frozenset(field.name for field in fields(InputKeys))

Job = TypeVar("Job")
P = TypeVar("P")
S = TypeVar("S", bound=StateLike)


def make_job(name: str = "job", *, size: int = 64, **changes: Any) -> GenerationJob:
    """Returns a job for an image, `size` pixels per side. See `change_job` for `changes`."""
    request = ResolvedRequest(
        prompt="a red circle", width=size, height=size, steps=4, seed=7, output_format="png", area=size * size
    )
    return change_job(GenerationJob(name, 1, request, f"results/{name}/1"), **changes)


def make_video_job(name: str = "job", *, video: Mapping[str, Any] | None = None, **changes: Any) -> GenerationJob:
    """Returns a job for a video of 17 frames, 96 x 64; `video` are fields of its VideoParams."""
    params: dict[str, Any] = {"frames": 17} | dict(video or {})
    defaults: dict[str, Any] = {
        "prompt": "a red circle moves to the right",
        "width": 96,
        "height": 64,
        "steps": 3,
        "output_format": "mp4",
        "video": VideoParams(**params),
    }
    return make_job(name, **defaults | changes)


def change_job(job: Job, **changes: Any) -> Job:
    """Returns a job, or a task's payload, with other fields, of its own, its request's or its inputs'."""
    request = {name: value for name, value in changes.items() if name in _REQUEST}
    inputs = {name: value for name, value in changes.items() if name in _INPUTS}
    own = {name: value for name, value in changes.items() if name not in _REQUEST | _INPUTS}
    record: Any = job
    return replace(record, request=replace(record.request, **request), inputs=replace(record.inputs, **inputs), **own)


def encode_jobs(backend: Backend[P, S], jobs: Sequence[GenerationJob]) -> list[S | JobError]:
    """Fetches jobs one by one and encodes the rest together. A job that can't be fetched has its JobError instead."""
    fetched: list[P | JobError] = []
    for job in jobs:
        try:
            fetched.append(backend.fetch(job))
        except JobError as error:
            fetched.append(error)
    states = iter(backend.encode([one for one in fetched if not isinstance(one, JobError)]))
    return [one if isinstance(one, JobError) else next(states) for one in fetched]
