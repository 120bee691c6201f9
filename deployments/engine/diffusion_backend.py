"""The engine's backend in production: a model family and the object store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from obstore.exceptions import BaseError

from deployments.adapters import AdapterBank
from deployments.contract.events import Preview
from deployments.contract.job import GenerationJob, Output
from deployments.contract.objects import ObjectStore
from deployments.engine.adapted import Applied
from deployments.engine.backend import JobError, Unavailable
from deployments.engine.state import State
from deployments.engine.step import step, translated_out_of_memory
from deployments.families.base import Commission, Family
from deployments.matting import cut_out
from deployments.outputs import Outputs

_FETCHERS = 8
"""Input pictures fetched at a time: a store in the network answers slowly, but many at once."""


class DiffusionBackend:
    """Implements engine.backend.Backend[State]."""

    def __init__(self, family: Family, store: ObjectStore, max_adapters: int = 4) -> None:
        """`max_adapters` tuned models stay in memory beside those in use."""
        self._family = family
        self._store = store
        self._outputs = Outputs(store)
        self._adapters = AdapterBank(family.transformer, store, max_adapters)
        self._fetchers = ThreadPoolExecutor(_FETCHERS, thread_name_prefix="inputs")

    def encode(self, jobs: Sequence[GenerationJob]) -> list[State | JobError]:
        """Fetches the input pictures and encodes all jobs together."""
        fetched = self._fetched({key for job in jobs for key in job.inputs})
        results: dict[int, State | JobError] = {}
        ready: dict[int, Commission] = {}
        for index, job in enumerate(jobs):
            if any(fetched[key] is None for key in job.inputs):
                results[index] = JobError("an input picture is no longer available")
            else:
                ready[index] = _commission(job, fetched)
        with translated_out_of_memory():
            results.update(zip(ready, self._family.encode(list(ready.values())), strict=True))
            return [self._tuned(results[index]) for index in range(len(jobs))]

    def step(self, states: Sequence[State]) -> None:
        step(self._family, states)

    def finish(self, state: State) -> Output:
        with translated_out_of_memory():
            pixels = self._family.finish(state)
        if state.job.transparent:
            pixels = cut_out(pixels)
        try:
            return self._outputs.store_picture(state.job, pixels)
        except (BaseError, OSError) as error:
            raise Unavailable(str(error)) from error

    def preview(self, state: State) -> Preview | None:
        pixels = self._family.preview(state)
        return None if pixels is None else self._outputs.store_preview(state.job, pixels, state.done_steps)

    def _tuned(self, result: State | JobError) -> State | JobError:
        """The state with its tuned model in place, loaded first if it is not here."""
        if isinstance(result, JobError) or result.job.adapter is None:
            return result
        adapter = result.job.adapter
        try:
            result.adapter = Applied(self._adapters.get(adapter).layers, adapter.strength)
        except JobError as error:
            return error
        return result

    def _fetched(self, keys: set[str]) -> dict[str, bytes | None]:
        """Each object's bytes, None for one that is gone."""
        ordered = sorted(keys)
        return dict(zip(ordered, self._fetchers.map(self._fetch, ordered), strict=True))

    def _fetch(self, key: str) -> bytes | None:
        try:
            return self._store.get_blocking(key)
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise Unavailable(str(error)) from error


def _commission(job: GenerationJob, fetched: Mapping[str, bytes | None]) -> Commission:
    def optional(key: str | None) -> bytes | None:
        return fetched[key] if key is not None else None

    references = tuple(data for key in job.references if (data := fetched[key]) is not None)
    return Commission(job, references, optional(job.mask), optional(job.control), optional(job.image_prompt))
