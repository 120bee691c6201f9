"""The engine's backend in production: a model family and the object store."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from deployments.contract.events import Preview
from deployments.contract.job import GenerationJob, Output
from deployments.contract.objects import ObjectStore
from deployments.engine.backend import JobError, OutOfMemory
from deployments.engine.state import State
from deployments.engine.step import step, translated_out_of_memory
from deployments.families.base import Commission, Family
from deployments.outputs import Outputs

_FETCHERS = 8
"""Reference pictures fetched at a time: a store in the network answers slowly, but many at once."""

_TOO_LARGE = "the picture does not fit into this model's memory"


class DiffusionBackend:
    """Implements engine.backend.Backend[State].

    Errors of the store other than a missing object are passed on: they are no job's fault.
    """

    def __init__(self, family: Family, store: ObjectStore) -> None:
        self._family = family
        self._store = store
        self._outputs = Outputs(store)
        self._fetchers = ThreadPoolExecutor(_FETCHERS, thread_name_prefix="references")

    def encode(self, jobs: Sequence[GenerationJob]) -> list[State | JobError]:
        """Fetches the references and encodes all jobs together; when that takes too much memory, one by one."""
        fetched = self._fetched({key for job in jobs for key in job.references})
        results: dict[int, State | JobError] = {}
        ready: dict[int, Commission] = {}
        for index, job in enumerate(jobs):
            references = tuple(data for key in job.references if (data := fetched[key]) is not None)
            if len(references) < len(job.references):
                results[index] = JobError("an input picture is no longer available")
            else:
                ready[index] = Commission(job, references)
        results.update(zip(ready, self._encoded(list(ready.values())), strict=True))
        return [results[index] for index in range(len(jobs))]

    def step(self, states: Sequence[State]) -> None:
        step(self._family, states)

    def finish(self, state: State) -> Output:
        try:
            with translated_out_of_memory():
                pixels = self._family.finish(state)
        except OutOfMemory as error:
            raise JobError(_TOO_LARGE) from error
        return self._outputs.store_picture(state.job, pixels)

    def preview(self, state: State) -> Preview | None:
        pixels = self._family.preview(state)
        return None if pixels is None else self._outputs.store_preview(state.job, pixels, state.done_steps)

    def _encoded(self, commissions: Sequence[Commission]) -> list[State | JobError]:
        if not commissions:
            return []
        try:
            with translated_out_of_memory():
                return self._family.encode(commissions)
        except OutOfMemory:
            if len(commissions) == 1:
                return [JobError(_TOO_LARGE)]
        return [result for commission in commissions for result in self._encoded([commission])]

    def _fetched(self, keys: set[str]) -> dict[str, bytes | None]:
        """Each object's bytes, None for one that is gone."""
        ordered = sorted(keys)
        return dict(zip(ordered, self._fetchers.map(self._fetch, ordered), strict=True))

    def _fetch(self, key: str) -> bytes | None:
        try:
            return self._store.get_blocking(key)
        except FileNotFoundError:
            return None
