"""The engine's backend in production: a model family and the object store."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock

import numpy as np
from obstore.exceptions import BaseError

from deployments.adapters.batched import AppliedAdapter
from deployments.adapters.cache import AdapterCache
from deployments.backends.inputs import InputFetcher
from deployments.checkpoint_files import CheckpointError
from deployments.contract.events import Preview
from deployments.contract.job import GenerationJob, Output
from deployments.contract.model import MattingSpec
from deployments.contract.objects import ObjectStore
from deployments.engine.backend import JobError, Unavailable
from deployments.families.device_errors import translated_device_errors
from deployments.families.family import Family
from deployments.families.prepared_request import PreparedRequest
from deployments.families.state import State
from deployments.families.step import step
from deployments.matting.background_remover import BackgroundRemover, load_background_remover
from deployments.outputs import Outputs
from deployments.pictures.pixels import Pixels

logger = logging.getLogger(__name__)

NO_SUBJECT = "No subject stands out from the background, so nothing was made transparent"

_OPAQUE = 255
_BY_COLOUR = MattingSpec()


class DiffusionBackend:
    """Implements engine.backend.Backend[State]."""

    def __init__(
        self, family: Family, store: ObjectStore, max_adapters: int = 4, *, matting: MattingSpec = _BY_COLOUR
    ) -> None:
        """`max_adapters` adapters stay in memory beside those in use. What `matting` names is loaded for the first job
        that needs it: most models never have one."""
        self._family = family
        self._outputs = Outputs(store)
        self._adapters = AdapterCache(family.transformer, store, max_adapters)
        self._fetcher = InputFetcher(store)
        self._matting = matting
        self._background_remover: BackgroundRemover | None = None
        self._background_lock = Lock()

    def encode(self, jobs: Sequence[GenerationJob]) -> list[State | JobError]:
        """Fetches the input pictures and encodes all jobs together."""
        fetched = self._fetcher.fetch(key for job in jobs for key in job.inputs)
        results: dict[int, State | JobError] = {}
        ready: dict[int, PreparedRequest] = {}
        for index, job in enumerate(jobs):
            if any(fetched[key] is None for key in job.inputs):
                results[index] = JobError("an input picture is no longer available")
            else:
                ready[index] = _prepared(job, fetched)
        with translated_device_errors():
            results.update(zip(ready, self._family.encode(list(ready.values())), strict=True))
            return [self._with_adapter(results[index]) for index in range(len(jobs))]

    def step(self, states: Sequence[State]) -> None:
        step(self._family, states)

    def finish(self, state: State) -> Output:
        with translated_device_errors():
            pixels = self._family.finish(state)
        if state.job.transparent:
            pixels = self._cut_out(pixels)
        try:
            output = self._outputs.store_picture(state.job, pixels)
        except (BaseError, OSError) as error:
            raise Unavailable(str(error)) from error
        whole = state.job.transparent and pixels[:, :, 3].min() == _OPAQUE
        return replace(output, warnings=(NO_SUBJECT,)) if whole else output

    def preview(self, state: State) -> Preview | None:
        with translated_device_errors():
            pixels = self._family.preview(state)
        return None if pixels is None else self._outputs.store_preview(state.job, pixels, state.done_steps)

    def _with_adapter(self, result: State | JobError) -> State | JobError:
        """The state with its adapter in place, loaded first if it is not here."""
        if isinstance(result, JobError) or result.job.adapter is None:
            return result
        adapter = result.job.adapter
        try:
            result.adapter = AppliedAdapter(self._adapters.get(adapter).layers, adapter.strength)
        except JobError as error:
            return error
        return result

    def _cut_out(self, pixels: Pixels) -> Pixels:
        """The subject alone, as RGBA."""
        with self._background_lock:  # the engine may finish two pictures at once, and one network is enough
            if self._background_remover is None:
                self._background_remover = self._load_background_remover()
            return np.dstack((pixels, self._background_remover.alpha(pixels)))

    def _load_background_remover(self) -> BackgroundRemover:
        try:
            return load_background_remover(self._matting)
        except CheckpointError as error:
            logger.error("no backgrounds are removed here: %s", error)
            raise JobError("the background can't be removed here") from None


def _prepared(job: GenerationJob, fetched: Mapping[str, bytes | None]) -> PreparedRequest:
    def optional(key: str | None) -> bytes | None:
        return fetched[key] if key is not None else None

    references = tuple(data for key in job.references if (data := fetched[key]) is not None)
    return PreparedRequest(job, references, optional(job.mask), optional(job.control), optional(job.image_prompt))
