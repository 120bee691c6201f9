"""The restoration backend: one forward per job, through a restorer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from deployments.backend import JobError
from deployments.backends.inputs import InputFetcher
from deployments.contract.job import GenerationJob, Output
from deployments.contract.objects import ObjectStore
from deployments.families.device_errors import translate_device_errors
from deployments.images import Backdrop, Pixels, open_image, stretch
from deployments.outputs import Outputs
from deployments.restorers import Restorer


@dataclass
class RestorerState:
    job: GenerationJob
    image: Pixels
    """Pixels in the job's size."""
    mask: Pixels | None
    """255 where to repaint, else 0, in the job's size."""
    output: Pixels | None = None
    done_steps: int = 0

    @property
    def key(self) -> Hashable:
        return self.mask is not None

    @property
    def tokens(self) -> int:
        """Pixels, as restorers have no tokens."""
        return self.job.request.width * self.job.request.height

    @property
    def total_steps(self) -> int:
        """1, as restorers have no steps."""
        return 1

    @property
    def steps_alike(self) -> int:
        return self.total_steps - self.done_steps


@dataclass(frozen=True, slots=True)
class FetchedImage:
    job: GenerationJob
    image: bytes
    mask: bytes | None


class RestorerBackend:
    """Implements Backend[FetchedImage, RestorerState]."""

    def __init__(self, restorer: Restorer, store: ObjectStore) -> None:
        self._restorer = restorer
        self._fetcher = InputFetcher(store)
        self._outputs = Outputs(store)

    @property
    def setup(self) -> Mapping[str, str]:
        return {"family": type(self._restorer).__name__}

    def counts(self) -> Mapping[str, float]:
        return {}

    def fetch(self, job: GenerationJob) -> FetchedImage:
        if not job.inputs.references:
            raise JobError("this model needs an image")
        image = job.inputs.references[0]
        inputs = self._fetcher.fetch_all(key for key in (image, job.inputs.mask) if key)
        return FetchedImage(job, inputs[image], inputs[job.inputs.mask] if job.inputs.mask else None)

    def encode(self, fetched: Sequence[FetchedImage]) -> list[RestorerState | JobError]:
        return [_initial_state(each) for each in fetched]

    def step(self, states: Sequence[RestorerState]) -> None:
        """Restores one image after the other. After a failure, those already restored are not restored again."""
        for state in states:
            if state.output is None:
                with translate_device_errors():
                    state.output = self._restorer.restore(state.image, state.mask)
        for state in states:
            state.done_steps = 1

    def finish(self, state: RestorerState) -> Callable[[], Output]:
        assert state.output is not None
        pixels = state.output
        if state.mask is not None:
            pixels = Backdrop(state.image, state.mask > 0).under(pixels)
        return partial(self._outputs.store_image, state.job, pixels)

    def preview(self, state: RestorerState) -> None: ...


def _initial_state(inputs: FetchedImage) -> RestorerState | JobError:
    job = inputs.job
    size = (job.request.height, job.request.width)
    try:
        image = open_image(inputs.image)
        mask = open_image(inputs.mask).convert("L") if inputs.mask is not None else None
    except JobError as error:
        return error
    if mask is not None and mask.size != image.size:
        return JobError("the mask must have the size of the image")
    repaint = None if mask is None else np.where(np.array(stretch(mask, size)) >= 128, 255, 0).astype(np.uint8)
    return RestorerState(job, np.array(stretch(image, size)), repaint)
