"""The engine's backend for restorers: a job's picture goes through one in a single step."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from obstore.exceptions import BaseError

from deployments.backends.inputs import InputFetcher
from deployments.contract.events import Preview
from deployments.contract.job import GenerationJob, Output
from deployments.contract.objects import ObjectStore
from deployments.engine.backend import JobError, Unavailable
from deployments.families.device_errors import translated_device_errors
from deployments.outputs import Outputs
from deployments.pictures.backdrop import Backdrop
from deployments.pictures.pixels import Pixels, open_picture, stretch
from deployments.restorers.restorer import Restorer


@dataclass
class RestorerState:
    job: GenerationJob
    picture: Pixels
    """In the job's size."""
    mask: Pixels | None
    """255 where it is painted anew, else 0; in the same size."""
    restored: Pixels | None = None
    done_steps: int = 0

    @property
    def key(self) -> Hashable:
        return self.job.width, self.job.height, self.mask is not None

    @property
    def total_steps(self) -> int:
        """Whatever the job says: restorers have no steps."""
        return 1


class RestorerBackend:
    """Implements engine.backend.Backend[RestorerState]."""

    def __init__(self, restorer: Restorer, store: ObjectStore) -> None:
        self._restorer = restorer
        self._fetcher = InputFetcher(store)
        self._outputs = Outputs(store)

    def encode(self, jobs: Sequence[GenerationJob]) -> list[RestorerState | JobError]:
        fetched = self._fetcher.fetch(key for job in jobs for key in (*job.references[:1], job.mask) if key)
        return [_begun(job, fetched) for job in jobs]

    def step(self, states: Sequence[RestorerState]) -> None:
        """One picture after the other. Those that are restored when another one fails are not restored again."""
        for state in states:
            if state.restored is None:
                with translated_device_errors():
                    state.restored = self._restorer.restore(state.picture, state.mask)
        for state in states:
            state.done_steps = 1

    def finish(self, state: RestorerState) -> Output:
        assert state.restored is not None
        pixels = state.restored
        if state.mask is not None:
            pixels = Backdrop(state.picture, state.mask > 0).under(pixels)
        try:
            return self._outputs.store_picture(state.job, pixels)
        except (BaseError, OSError) as error:
            raise Unavailable(str(error)) from error

    def preview(self, state: RestorerState) -> Preview | None:
        """There is nothing between the beginning and the end."""
        return None


def _begun(job: GenerationJob, fetched: Mapping[str, bytes | None]) -> RestorerState | JobError:
    if not job.references:
        return JobError("this model needs a picture")
    data = fetched[job.references[0]]
    mask_data = fetched[job.mask] if job.mask else b""
    if data is None or mask_data is None:
        return JobError("an input picture is no longer available")
    size = (job.height, job.width)
    try:
        picture = open_picture(data)
        mask = open_picture(mask_data).convert("L") if job.mask else None
    except JobError as error:
        return error
    if mask is not None and mask.size != picture.size:
        return JobError("the mask must have the size of the picture")
    repaint = None if mask is None else np.where(np.array(stretch(mask, size)) >= 128, 255, 0).astype(np.uint8)
    return RestorerState(job, np.array(stretch(picture, size)), repaint)
