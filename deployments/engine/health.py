"""How the engine is doing, for those who decide whether to keep it: is it stuck, broken, or failing everything?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum

from deployments.contract import counts
from deployments.contract.histogram import sum_field
from deployments.contract.job import GenerationJob
from deployments.engine.backend import NotFinite, OutOfMemory
from deployments.engine.request_handle import RequestHandle


class Worker(IntEnum):
    ENCODE = 0
    STEPS = 1
    FINISH = 2

    @property
    def counted(self) -> str:
        return counts.seconds(counts.CALLS[self])


class Health:
    """The engine's threads that use the device tell it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._calls: list[float | None] = [None for _ in Worker]
        self._faults = 0
        self._broken = False
        self._counts: defaultdict[str, float] = defaultdict(float)
        self._fitted: list[tuple[int, int]] = []
        """The largest demands of jobs that were done; none of them covers another."""

    def now(self) -> float:
        """By the engine's clock."""
        return self._clock()

    @property
    def counts(self) -> Mapping[str, float]:
        """Seconds in the backend by what was done there, steps and their members."""
        return dict(self._counts)

    @property
    def busy_since(self) -> float | None:
        """When the longest backend call now in progress began, by the engine's clock; None when there is none."""
        return min((began for began in list(self._calls) if began is not None), default=None)

    @property
    def faults(self) -> int:
        """Unexpected errors since a job was last done. Many mean that the model is broken, not the jobs."""
        return self._faults

    @property
    def broken(self) -> bool:
        """Whether the device failed. Nothing more runs in this process."""
        return self._broken

    @contextmanager
    def call(self, worker: Worker, handles: Sequence[RequestHandle]) -> Iterator[None]:
        """Notes that `worker` is inside the backend, and that these share the time."""
        self._calls[worker] = began = self._clock()
        try:
            yield
        except (NotFinite, OutOfMemory) as error:
            self._counts[counts.OUT_OF_MEMORY if isinstance(error, OutOfMemory) else counts.NOT_FINITE] += 1
            raise
        finally:
            self._calls[worker] = None
            took_s = self._clock() - began
            self._counts[worker.counted] += took_s
            for handle in handles:
                handle.device_s += took_s / len(handles)

    def stepped(self, members: int, step_s: float) -> None:
        """So many took a step together, in so many seconds."""
        step_ms = 1000 * step_s
        self._counts[counts.STEPS] += 1
        self._counts[counts.MEMBERS] += members
        self._counts[counts.BATCHES.field(counts.BATCH, members)] += 1
        self._counts[counts.STEP_TIMES.field(counts.STEP, step_ms)] += 1
        self._counts[sum_field(counts.STEP)] += step_ms

    def succeeded(self, job: GenerationJob) -> None:
        """A job is done. A step alone proves nothing: numbers that are none pass through steps without complaint."""
        self._faults = 0
        demand = _demand(job)
        if not self.has_fitted(job):
            self._fitted = [each for each in self._fitted if not _covers(demand, each)] + [demand]

    def has_fitted(self, job: GenerationJob) -> bool:
        """Whether a job that needs as much memory was done in this process."""
        return any(_covers(each, _demand(job)) for each in self._fitted)

    def faulted(self) -> bool:
        """Notes an unexpected error. True when the job may be to blame: since the last such error another was done, or
        there was none since loading, which has shown that the model runs."""
        self._faults += 1
        return self._faults == 1

    def device_broke(self) -> None:
        self._broken = True


def _demand(job: GenerationJob) -> tuple[int, int]:
    """What the memory of a job goes by: pixels of all frames, and input pictures."""
    return job.width * job.height * (job.clip.frames if job.clip else 1), len(job.inputs)


def _covers(demand: tuple[int, int], other: tuple[int, int]) -> bool:
    return demand[0] >= other[0] and demand[1] >= other[1]
