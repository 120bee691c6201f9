"""The native image backend: a packed model family over the object store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock

import numpy as np

from deployments.backend import JobError, OutOfMemory
from deployments.backends.inputs import InputFetcher
from deployments.checkpoint_files import CheckpointError
from deployments.contract import counts
from deployments.contract.events import Preview
from deployments.contract.job import GenerationJob, Output
from deployments.contract.model import MattingConfig
from deployments.contract.objects import ObjectStore
from deployments.families.conditioning import PreparedRequest
from deployments.families.device_errors import translate_device_errors
from deployments.families.family import Family
from deployments.families.state import State
from deployments.families.step import step
from deployments.images import Pixels
from deployments.lora.segments import AppliedAdapter
from deployments.lora.weights import AdapterCache
from deployments.lru_cache import MB
from deployments.matting import BackgroundRemover, fetch_network, load_background_remover
from deployments.outputs import Outputs
from deployments.torch_process import SideStream

logger = logging.getLogger(__name__)

NO_SUBJECT = "No subject stands out from the background, so nothing was made transparent"

_OPAQUE = 255
_BY_COLOUR = MattingConfig()


@dataclass(frozen=True, slots=True)
class FetchedJob:
    request: PreparedRequest
    adapter: AppliedAdapter | None = None


class DiffusionBackend:
    """Implements Backend[FetchedJob, State]."""

    def __init__(
        self,
        family: Family,
        store: ObjectStore,
        *,
        adapters_mb: int = 1024,
        matting: MattingConfig = _BY_COLOUR,
        setup: Mapping[str, str] | None = None,
    ) -> None:
        """`adapters_mb` of adapters stay in memory beside those in use. The network of `matting` is fetched now, so
        that no job waits for a download, and loaded for the first job that needs it, as most models never have one."""
        self._family = family
        self._outputs = Outputs(store)
        self._adapters = AdapterCache({"transformer": family.transformer}, store, adapters_mb * MB)
        self._fetcher = InputFetcher(store)
        self._encoding, self._finishing = (SideStream(family.transformer.device) for _ in range(2))
        self._matting = _resolve_matting(matting)
        self.setup: Mapping[str, str] = dict(setup or {})
        self._background_remover: BackgroundRemover | None = None
        self._background_lock = Lock()

    def counts(self) -> Mapping[str, float]:
        result: dict[str, float] = {}
        for name, cache in {**self._family.caches, "adapters": self._adapters.stats}.items():
            result |= counts.cache_counts(name, cache)
        return result

    def fetch(self, job: GenerationJob) -> FetchedJob:
        """Fetches the input images and the adapter, and encodes the prompt where a text encoder is shared."""
        prepared_request = _prepare_request(job, self._fetcher.fetch_all(job.inputs.keys))
        with self._memory():
            request = self._family.fetch(prepared_request)
            if job.adapter is None:
                return FetchedJob(request)
            layers = self._adapters.get(job.adapter).layers
        strength = job.adapter.strength
        return FetchedJob(request, AppliedAdapter(layers, strength) if strength != 0 else None)

    def encode(self, fetched: Sequence[FetchedJob]) -> list[State | JobError]:
        with self._memory(), self._encoding.activate():
            states = self._family.encode([each.request for each in fetched])
        for state, each in zip(states, fetched, strict=True):
            if not isinstance(state, JobError):
                state.adapter = each.adapter
        return states

    def step(self, states: Sequence[State]) -> None:
        with self._memory():
            step(self._family, states)

    def finish(self, state: State) -> Callable[[], Output]:
        with self._memory(), self._finishing.activate():
            pixels = self._family.finish(state)
        with self._memory():
            return partial(self._store, state.job, self._cut_out(pixels) if state.job.request.transparent else pixels)

    def preview(self, state: State) -> Callable[[], Preview] | None:
        with translate_device_errors():
            pixels = self._family.preview(state)
        return None if pixels is None else partial(self._outputs.store_preview, state.job, pixels, state.done_steps)

    @contextmanager
    def _memory(self) -> Iterator[None]:
        """Frees caches when memory runs out."""
        try:
            with translate_device_errors():
                yield
        except OutOfMemory:
            self._family.forget()
            self._adapters.clear()
            raise

    def _store(self, job: GenerationJob, pixels: Pixels) -> Output:
        output = self._outputs.store_image(job, pixels)
        whole = job.request.transparent and pixels[:, :, 3].min() == _OPAQUE
        return replace(output, warnings=(NO_SUBJECT,)) if whole else output

    def _cut_out(self, pixels: Pixels) -> Pixels:
        with self._background_lock:  # two images may be finished at once; one network is enough
            if self._background_remover is None:
                self._background_remover = self._load_background_remover()
            return np.dstack((pixels, self._background_remover.alpha(pixels)))

    def _load_background_remover(self) -> BackgroundRemover:
        if self._matting is None:
            raise JobError("the background can't be removed here")
        try:
            return load_background_remover(self._matting)
        except CheckpointError as error:
            logger.error("can't remove backgrounds: %s", error)
            raise JobError("the background can't be removed here") from None


def _resolve_matting(matting: MattingConfig) -> MattingConfig | None:
    """Returns None if the network can't be had: all other jobs can still be done."""
    try:
        return fetch_network(matting)
    except CheckpointError as error:
        logger.error("can't remove backgrounds: %s", error)
        return None


def _prepare_request(job: GenerationJob, inputs: Mapping[str, bytes]) -> PreparedRequest:
    def optional(key: str | None) -> bytes | None:
        return inputs[key] if key is not None else None

    references = tuple(inputs[key] for key in job.inputs.references)
    return PreparedRequest(
        job, references, optional(job.inputs.mask), optional(job.inputs.control), optional(job.inputs.image_prompt)
    )
