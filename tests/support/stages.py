"""A job's way through a backend, without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from deployments.backend import Backend, JobError, StateLike
from deployments.contract.job import GenerationJob

P = TypeVar("P")
S = TypeVar("S", bound=StateLike)


def encode_jobs(backend: Backend[P, S], jobs: Sequence[GenerationJob]) -> list[S | JobError]:
    """Fetched one by one, encoded together; those that can't be fetched have their JobError."""
    fetched: list[P | JobError] = []
    for job in jobs:
        try:
            fetched.append(backend.fetch(job))
        except JobError as error:
            fetched.append(error)
    states = iter(backend.encode([one for one in fetched if not isinstance(one, JobError)]))
    return [one if isinstance(one, JobError) else next(states) for one in fetched]
