"""Requests of the engine: the table of their stages, the handle that callers hold, and the engine's health.

Every method takes the lock for itself and holds it for a moment only; no backend call and no event happens under it.
A request is in exactly one of waiting, encoding, active and storing until it ends.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, auto
from itertools import islice
from typing import Generic

from deployments.backend import (
    ContentFlagged,
    JobError,
    NotFinite,
    OutOfMemory,
    P,
    S,
    TextEncoderUnavailable,
    Unavailable,
)
from deployments.contract import counts
from deployments.contract.counts import sum_field
from deployments.contract.events import Done, Event, Failed, Interrupted, Progress
from deployments.contract.job import GenerationJob
from deployments.engine.scheduler import admit, is_fetched

log = logging.getLogger(__name__)

PROGRESS_INTERVAL = 0.25
"""Seconds between two `Progress` events of a job, at least."""


class Milestone(Enum):
    """What a job has behind it."""

    ADMITTED = auto()
    ENCODED = auto()
    LAST_STEP = auto()
    FINISHING = auto()
    FINISHED = auto()


class RequestHandle:
    """What `Engine.submit` returns. Events go out one at a time; nothing follows the end."""

    def __init__(self, job: GenerationJob, emit: Callable[[Event], None], submitted: float) -> None:
        """`submitted` in seconds of the engine's clock."""
        self.job = job
        self.submitted = submitted
        self.device_s = 0.0
        """Seconds of the device that were spent on it: its share of what it did together with others."""
        self.reached: dict[Milestone, float] = {}
        """When, in seconds of the engine's clock; for the spans of a job that is traced."""
        self._emit = emit
        self._ended = False
        self._fraction = 0.0
        self._progressed: float | None = None
        # Held while `emit` runs, so that `end` returns only when no event is on its way any more. Reentrant, since
        # `emit` may cancel its own job.
        self._lock = threading.RLock()

    @property
    def ended(self) -> bool:
        """Whether the last event is out, or the job was cancelled."""
        return self._ended

    def remaining(self, now: float) -> float | None:
        """Seconds until its time is over, `now` by the engine's clock; None without a limit, or before admission."""
        limit, admitted = self.job.remaining_s, self.reached.get(Milestone.ADMITTED)
        return None if limit is None or admitted is None else limit - (now - admitted)

    def send(self, event: Event) -> None:
        with self._lock:
            if self._ended:
                return
            try:
                self._emit(event)
            except Exception:
                # Nobody listens any more: working on would only take the batch from others.
                log.exception("listener of job %s failed; the job is dropped", self.job.id)
                self._ended = True

    def progress(self, fraction: float, now: float, batch: int = 0, step_s: float = 0.0) -> None:
        """Sends `Progress`, unless the last was a moment ago or said as much; `now` by the engine's clock."""
        with self._lock:
            self.reached[Milestone.LAST_STEP] = now
            if self._progressed is not None and now - self._progressed < PROGRESS_INTERVAL:
                return
            if fraction <= self._fraction:
                return
            self._progressed, self._fraction = now, min(fraction, 1.0)
            self.send(Progress(self._fraction, batch, step_s))

    def end(self, event: Done | Failed | Interrupted | None = None) -> None:
        """Sends the last event, or None to leave without one. Only the first call does anything."""
        with self._lock:
            if event is not None:
                self.send(replace(event, device_s=self.device_s))
            self._ended = True


class Stage(Enum):
    STEPPING = auto()
    DENOISED = auto()
    """All steps done, waits for the finishing thread."""
    FINISHING = auto()


@dataclass(slots=True, eq=False)
class WaitingRequest(Generic[P]):
    """Not admitted yet."""

    handle: RequestHandle
    fetching: bool = False
    """Somebody fetches, or has fetched, what the job needs."""
    prepared: P | None = None

    @property
    def job(self) -> GenerationJob:
        return self.handle.job

    @property
    def fetched(self) -> bool:
        return self.prepared is not None


@dataclass(slots=True, eq=False)
class ActiveRequest(Generic[S]):
    """An admitted and encoded job, and its image."""

    handle: RequestHandle
    state: S
    stage: Stage = Stage.STEPPING
    previewing: bool = False
    """A preview is on its way to the store."""
    previewed: float | None = None
    """When the last one was made, by the engine's clock."""
    previews: tuple[int, ...] = ()
    """The steps after which they were made."""

    @property
    def job(self) -> GenerationJob:
        return self.handle.job

    @property
    def submitted(self) -> float:
        return self.handle.submitted


class RequestTable(Generic[P, S]):
    def __init__(self) -> None:
        self._waiting: deque[WaitingRequest[P]] = deque()
        self._encoding: list[WaitingRequest[P]] = []
        self._active: list[ActiveRequest[S]] = []
        self._storing: list[RequestHandle] = []
        self._condition = threading.Condition()
        self._changes = 0
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def changes(self) -> int:
        """Grows with everything that may give a sleeping thread something to do."""
        return self._changes

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests admitted and not ended."""
        with self._condition:
            return len(self._encoding) + len(self._active) + len(self._storing)

    def add(self, handle: RequestHandle) -> None:
        """Raises RuntimeError once closed."""
        with self._condition:
            if self._closed:
                raise RuntimeError("the engine is stopped")
            self._waiting.append(WaitingRequest(handle))
            self._notify()

    def close(self) -> list[RequestHandle]:
        """Nothing is added any more, and sleepers wake. Returns all that have not ended."""
        with self._condition:
            self._closed = True
            self._notify()
        return self.handles()

    def handles(self) -> list[RequestHandle]:
        """Of all that have not ended."""
        with self._condition:
            requests = (*self._waiting, *self._encoding, *self._active)
            return [*(request.handle for request in requests), *self._storing]

    def to_fetch(self, ahead: int) -> list[WaitingRequest[P]]:
        """Those of the first `ahead` waiting that nobody was asked to fetch for: now somebody is."""
        with self._condition:
            requests = [request for request in islice(self._waiting, ahead) if not request.fetching]
            for request in requests:
                request.fetching = True
            return requests

    def fetched(self, request: WaitingRequest[P], prepared: P) -> None:
        with self._condition:
            request.prepared = prepared
            self._notify()

    def admit(
        self,
        *,
        max_running: int,
        at_most: int,
        interleave: bool = True,
        ready: Callable[[WaitingRequest[P]], bool] = is_fetched,
    ) -> list[WaitingRequest[P]]:
        """Moves those that may join now from waiting to encoding, `at_most` at once and `max_running` in all; see
        `scheduler.admit`; none while others run, without `interleave`. What only has to be stored runs no longer.
        `ready` is called with the lock held."""
        with self._condition:
            active = [*(request.job for request in self._active), *(handle.job for handle in self._storing)]
            room = min(at_most, max_running - len(self._active)) if interleave or not self._active else 0
            self._encoding = admit(self._waiting, active, room=room, ready=ready)
            for request in self._encoding:
                self._waiting.remove(request)
            return list(self._encoding)

    def encoded(self, requests: list[ActiveRequest[S]]) -> None:
        """Ends encoding: what came of it becomes active, unless cancelled meanwhile."""
        with self._condition:
            self._encoding = []
            self._active += [request for request in requests if not request.handle.ended]
            self._notify()

    def stepping(self) -> list[ActiveRequest[S]]:
        with self._condition:
            return [request for request in self._active if request.stage is Stage.STEPPING]

    def unfinished(self) -> list[RequestHandle]:
        """Of requests that still need more than a finish."""
        with self._condition:
            stepping = (request for request in self._active if request.stage is Stage.STEPPING)
            return [request.handle for request in (*self._waiting, *self._encoding, *stepping)]

    def move(self, request: ActiveRequest[S], stage: Stage) -> None:
        with self._condition:
            request.stage = stage
            self._notify()

    def to_finish(self, max_storing: int) -> ActiveRequest[S] | None:
        """The first with all steps done, now in finishing; None as long as so many are being stored."""
        with self._condition:
            if len(self._storing) >= max_storing:
                return None
            ready = (one for one in self._active if one.stage is Stage.DENOISED and not one.handle.ended)
            request = next(ready, None)
            if request is not None:
                request.stage = Stage.FINISHING
            return request

    def remove(self, request: ActiveRequest[S]) -> None:
        with self._condition:
            self._active = [other for other in self._active if other is not request]
            self._notify()

    def storing(self, request: ActiveRequest[S]) -> None:
        """The request is made, and needs the device no longer."""
        with self._condition:
            self._storing.append(request.handle)
            self.remove(request)

    def stored(self, handle: RequestHandle) -> None:
        with self._condition:
            self._storing.remove(handle)
            self._notify()

    def drop_ended(self) -> None:
        """Forgets ended requests. One being finished or stored still takes its memory, and leaves when that call
        returns."""
        with self._condition:
            waiting = deque(request for request in self._waiting if not request.handle.ended)
            active = [
                request for request in self._active if request.stage is Stage.FINISHING or not request.handle.ended
            ]
            if len(waiting) < len(self._waiting) or len(active) < len(self._active):
                self._waiting, self._active = waiting, active
                self._notify()

    def wait_for(self, reason: Callable[[], bool]) -> None:
        """Sleeps until `reason` holds or the table is closed. `reason` is called with the lock held."""
        with self._condition:
            self._condition.wait_for(lambda: self._closed or reason())

    def wake(self) -> None:
        """Has sleeping threads look again at what there is to do."""
        with self._condition:
            self._notify()

    def _notify(self) -> None:
        self._changes += 1
        self._condition.notify_all()


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
        self._faulty_jobs: set[str] = set()
        """Those that failed unexpectedly since a job was last done."""
        self._broken = False
        self._counts: defaultdict[str, float] = defaultdict(float)
        self._completed: list[tuple[int, int]] = []
        """The largest demands of jobs that were done; none of them covers another."""

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

    def record_step(self, jobs: Sequence[GenerationJob], step_s: float) -> None:
        """They took a step together, in so many seconds."""
        step_ms, members, size = 1000 * step_s, len(jobs), sum(job.request.megapixels for job in jobs)
        self._counts[counts.STEPS] += 1
        self._counts[counts.MEMBERS] += members
        self._counts[counts.BATCHES.field(counts.BATCH, members)] += 1
        self._counts[counts.STEP_TIMES.field(counts.STEP, step_ms)] += 1
        self._counts[sum_field(counts.STEP)] += step_ms
        self._counts[counts.STEP_SIZE] += size
        self._counts[counts.STEP_SIZE_SQUARED] += size * size
        self._counts[counts.STEP_SIZE_SECONDS] += size * step_s

    def succeeded(self, job: GenerationJob) -> None:
        """A job is done. A step alone proves nothing: numbers that are none pass through steps without complaint."""
        self._faults = 0
        self._faulty_jobs.clear()
        self._counts[counts.JOBS] += 1
        demand = _demand(job)
        if not self.has_completed(job):
            self._completed = [each for each in self._completed if not _covers(demand, each)] + [demand]

    def has_completed(self, job: GenerationJob) -> bool:
        """Whether a job that needs as much memory was done in this process."""
        return any(_covers(each, _demand(job)) for each in self._completed)

    def faulted(self, job: GenerationJob | None) -> bool:
        """Notes an unexpected error. True when the job may be to blame: since the last such error another was done, or
        there was none since loading, which has shown that the model runs. Every third error in a row of the same job
        counts likewise, as long as no other job fails. None: several jobs failed."""
        self._faults += 1
        self._faulty_jobs.add(job.id if job else "")
        return len(self._faulty_jobs) == 1 and self._faults % 3 == 1

    def device_broke(self) -> None:
        self._broken = True


def _demand(job: GenerationJob) -> tuple[int, int]:
    """What the memory of a job goes by: pixels of all frames, and input images."""
    return job.request.width * job.request.height * (job.request.video.frames if job.request.video else 1), len(
        job.inputs.keys
    )


def _covers(demand: tuple[int, int], other: tuple[int, int]) -> bool:
    return demand[0] >= other[0] and demand[1] >= other[1]


NO_MEMORY = Failed("not enough memory for this image: ask for a smaller size or fewer references")
NO_ROOM = Interrupted("the model has no memory for this request at the moment", blame=False)
BROKEN = Interrupted("the model could not process this request", blame=True)
NOTHING_USABLE = Interrupted("the model made nothing usable of this request", blame=True)
DEVICE_BROKEN = Interrupted("the device that the model runs on failed", blame=False)
STORAGE_UNREACHABLE = Interrupted("the service's storage is out of reach", blame=False, counts=False)
TEXT_ENCODER_UNREACHABLE = Interrupted("the service's text encoder is out of reach", blame=False, counts=False)
DEADLINE_PASSED = Failed("the deadline passed before the image was done")


def deadline_infeasible(needed_s: float, remaining_s: float) -> Failed:
    """How a job ends that can't be done in the time left."""
    return Failed(
        f"this can't be done before its deadline: it would take {_duration_text(needed_s)} more, and "
        f"{_duration_text(remaining_s)} are left; "
        "fewer steps or a smaller size take less"
    )


def fail(handle: RequestHandle, error: Exception, health: Health) -> None:
    """Ends the one request that `error` belongs to."""
    blame, fits = True, health.has_completed(handle.job)
    if not isinstance(error, (JobError, OutOfMemory, Unavailable)):
        blame = health.faulted(handle.job)
        log.error("job %s failed", handle.job.id, exc_info=error)
    handle.end(failure_event(error, blame=blame, fits=fits))


def failure_event(error: Exception, *, blame: bool, fits: bool = False) -> Failed | Interrupted:
    """How a job ends here that failed alone with `error`.

    An error that nobody foresaw may be this worker's and not the job's, so another attempt decides. `blame` says
    whether it speaks against the job: not when the model has done nothing well since it last failed. Memory that ran
    out is no fault of a job that `fits`, as one of its size was done before, nor where other processes hold some.
    """
    match error:
        case JobError():
            return Failed(str(error), moderated=isinstance(error, ContentFlagged))
        case OutOfMemory(others_hold_memory=crowded):
            return NO_ROOM if crowded or fits else NO_MEMORY
        case TextEncoderUnavailable():
            return TEXT_ENCODER_UNREACHABLE
        case Unavailable():
            return STORAGE_UNREACHABLE
        case NotFinite():
            return replace(NOTHING_USABLE, blame=blame)
        case _:
            return replace(BROKEN, blame=blame)


def _duration_text(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 180 else f"{seconds:.0f} seconds"
