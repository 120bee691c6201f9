"""Requests of the engine: the table of their stages, the handle that callers hold, and the engine's health.

Every method takes the lock itself and holds it for a moment: no backend call and no event happens under it. A request
is in exactly one of waiting, encoding, active and storing until it ends.
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
"""Minimum seconds between two `Progress` events of a job."""


class Milestone(Enum):
    ADMITTED = auto()
    ENCODED = auto()
    LAST_STEP = auto()
    FINISHING = auto()
    FINISHED = auto()


class RequestHandle:
    """A submitted job. Sends its events one at a time, none after the last."""

    def __init__(self, job: GenerationJob, emit: Callable[[Event], None], submitted_at: float) -> None:
        """`submitted_at`: seconds of the engine's clock."""
        self.job = job
        self.submitted_at = submitted_at
        self.device_s = 0.0
        """Seconds of the device spent on the job; calls for several jobs are split evenly."""
        self.reached: dict[Milestone, float] = {}
        """Seconds of the engine's clock by milestone, for the spans of a traced job."""
        self._emit = emit
        self.ended = False
        """True after the last event, or when the job was cancelled."""
        self._fraction = 0.0
        self._progress_at: float | None = None
        # Held while `emit` runs, so that no event is on its way when `end` returns. Reentrant, as `emit` may cancel its
        # own job.
        self._lock = threading.RLock()

    def remaining(self, now: float) -> float | None:
        """Returns the seconds until the deadline at `now`, by the engine's clock; None without a deadline, or before
        admission."""
        limit, admitted = self.job.remaining_s, self.reached.get(Milestone.ADMITTED)
        return None if limit is None or admitted is None else limit - (now - admitted)

    def send(self, event: Event) -> None:
        with self._lock:
            if self.ended:
                return
            try:
                self._emit(event)
            except Exception:
                # The listener is gone: more work would only take the batch from others.
                log.exception("listener of job %s failed; the job is dropped", self.job.id)
                self.ended = True

    def progress(self, fraction: float, now: float, batch: int = 0, step_s: float = 0.0) -> None:
        """Sends `Progress`, unless the last one was a moment ago or said as much. `now`: the engine's clock."""
        with self._lock:
            self.reached[Milestone.LAST_STEP] = now
            if self._progress_at is not None and now - self._progress_at < PROGRESS_INTERVAL:
                return
            if fraction <= self._fraction:
                return
            self._progress_at, self._fraction = now, min(fraction, 1.0)
            self.send(Progress(self._fraction, batch, step_s))

    def end(self, event: Done | Failed | Interrupted | None = None) -> None:
        """Ends the job with its last event, or without one. Only the first call has an effect."""
        with self._lock:
            if event is not None:
                self.send(replace(event, device_s=self.device_s))
            self.ended = True


class Stage(Enum):
    STEPPING = auto()
    DENOISED = auto()
    """All steps are done; waits for the finishing thread."""
    FINISHING = auto()


@dataclass(slots=True, eq=False)
class WaitingRequest(Generic[P]):
    handle: RequestHandle
    fetching: bool = False
    """Its inputs are being fetched, or have been."""
    prepared: P | None = None

    @property
    def job(self) -> GenerationJob:
        return self.handle.job

    @property
    def fetched(self) -> bool:
        return self.prepared is not None


@dataclass(slots=True, eq=False)
class ActiveRequest(Generic[S]):
    handle: RequestHandle
    state: S
    stage: Stage = Stage.STEPPING
    previewing: bool = False
    """A preview is being stored."""
    previewed_at: float | None = None
    """Time of the last preview, in seconds of the engine's clock."""
    previews: tuple[int, ...] = ()
    """Steps that previews were made after."""

    @property
    def job(self) -> GenerationJob:
        return self.handle.job

    @property
    def submitted_at(self) -> float:
        return self.handle.submitted_at


class RequestTable(Generic[P, S]):
    def __init__(self) -> None:
        self._waiting: deque[WaitingRequest[P]] = deque()
        self._encoding: list[WaitingRequest[P]] = []
        self._active: list[ActiveRequest[S]] = []
        self._storing: list[RequestHandle] = []
        self._condition = threading.Condition()
        self.changes = 0
        """Counter that grows whenever a sleeping thread may have something to do."""
        self.closed = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        with self._condition:
            return len(self._encoding) + len(self._active) + len(self._storing)

    def add(self, handle: RequestHandle) -> None:
        """Raises RuntimeError once closed."""
        with self._condition:
            if self.closed:
                raise RuntimeError("the engine is stopped")
            self._waiting.append(WaitingRequest(handle))
            self._notify()

    def close(self) -> list[RequestHandle]:
        """Refuses further requests, wakes sleepers and returns all requests that have not ended."""
        with self._condition:
            self.closed = True
            self._notify()
        return self.handles()

    def handles(self) -> list[RequestHandle]:
        with self._condition:
            requests = (*self._waiting, *self._encoding, *self._active)
            return [*(request.handle for request in requests), *self._storing]

    def to_fetch(self, ahead: int) -> list[WaitingRequest[P]]:
        """Returns those of the first `ahead` waiting requests that are not being fetched, and marks them so."""
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
        max_batch: int,
        interleave: bool = True,
        is_ready: Callable[[WaitingRequest[P]], bool] = is_fetched,
    ) -> list[WaitingRequest[P]]:
        """Moves requests from waiting to encoding, by `scheduler.admit`: up to `max_batch` at once and `max_running` in
        all, not counting those being stored. Without `interleave`, admits none while others run. Calls `is_ready` with
        the lock held."""
        with self._condition:
            active = [*(request.job for request in self._active), *(handle.job for handle in self._storing)]
            capacity = min(max_batch, max_running - len(self._active)) if interleave or not self._active else 0
            self._encoding = admit(self._waiting, active, capacity=capacity, is_ready=is_ready)
            for request in self._encoding:
                self._waiting.remove(request)
            return list(self._encoding)

    def encoded(self, requests: list[ActiveRequest[S]]) -> None:
        """Ends encoding and makes `requests` active, unless cancelled meanwhile."""
        with self._condition:
            self._encoding = []
            self._active += [request for request in requests if not request.handle.ended]
            self._notify()

    def stepping(self) -> list[ActiveRequest[S]]:
        with self._condition:
            return [request for request in self._active if request.stage is Stage.STEPPING]

    def unfinished(self) -> list[RequestHandle]:
        """Returns the handles of all requests whose steps are not done."""
        with self._condition:
            stepping = (request for request in self._active if request.stage is Stage.STEPPING)
            return [request.handle for request in (*self._waiting, *self._encoding, *stepping)]

    def move(self, request: ActiveRequest[S], stage: Stage) -> None:
        with self._condition:
            request.stage = stage
            self._notify()

    def to_finish(self, max_storing: int) -> ActiveRequest[S] | None:
        """Moves the first request with all steps done to finishing and returns it; None while `max_storing` are being
        stored."""
        with self._condition:
            if len(self._storing) >= max_storing:
                return None
            ready = (each for each in self._active if each.stage is Stage.DENOISED and not each.handle.ended)
            request = next(ready, None)
            if request is not None:
                request.stage = Stage.FINISHING
            return request

    def remove(self, request: ActiveRequest[S]) -> None:
        with self._condition:
            self._active = [other for other in self._active if other is not request]
            self._notify()

    def storing(self, request: ActiveRequest[S]) -> None:
        """Marks the request as finished: it needs the device no longer."""
        with self._condition:
            self._storing.append(request.handle)
            self.remove(request)

    def stored(self, handle: RequestHandle) -> None:
        with self._condition:
            self._storing.remove(handle)
            self._notify()

    def drop_ended(self) -> None:
        """Forgets ended requests. One being finished or stored still takes memory, and leaves when that call
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
            self._condition.wait_for(lambda: self.closed or reason())

    def wake(self) -> None:
        with self._condition:
            self._notify()

    def _notify(self) -> None:
        self.changes += 1
        self._condition.notify_all()


class Worker(IntEnum):
    ENCODE = 0
    STEPS = 1
    FINISH = 2

    @property
    def counter(self) -> str:
        return counts.seconds_field(counts.CALLS[self])


class Health:
    """Counters and failures, recorded by the engine's threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._calls: list[float | None] = [None for _ in Worker]
        self.faults = 0
        """Unexpected errors since the last success. Many mean that the model is broken, not the jobs."""
        self._faulty_jobs: set[str] = set()
        """Ids of the jobs that failed unexpectedly since the last success."""
        self.broken = False
        """True when only a new process helps, as when the device failed: every job ends without blame."""
        self._counts: defaultdict[str, float] = defaultdict(float)
        self._completed: list[tuple[int, int]] = []
        """Largest memory demands of finished jobs; none includes another."""

    @property
    def counts(self) -> Mapping[str, float]:
        """Backend seconds by call, steps and their members."""
        return dict(self._counts)

    @property
    def busy_since(self) -> float | None:
        """Start of the longest backend call in progress, in seconds of the engine's clock; None without a call."""
        return min((started_at for started_at in list(self._calls) if started_at is not None), default=None)

    @contextmanager
    def call(self, worker: Worker, handles: Sequence[RequestHandle]) -> Iterator[None]:
        """Records that `worker` is inside the backend, and splits the time among `handles`."""
        self._calls[worker] = started_at = self._clock()
        try:
            yield
        except (NotFinite, OutOfMemory) as error:
            self._counts[counts.OUT_OF_MEMORY if isinstance(error, OutOfMemory) else counts.NOT_FINITE] += 1
            raise
        finally:
            self._calls[worker] = None
            took_s = self._clock() - started_at
            self._counts[worker.counter] += took_s
            for handle in handles:
                handle.device_s += took_s / len(handles)

    def record_step(self, jobs: Sequence[GenerationJob], step_s: float) -> None:
        """Counts a step that these jobs took together."""
        step_ms, members, size = 1000 * step_s, len(jobs), sum(job.request.megapixels for job in jobs)
        self._counts[counts.STEPS] += 1
        self._counts[counts.MEMBERS] += members
        self._counts[counts.BATCHES.field(counts.BATCH, members)] += 1
        self._counts[counts.STEP_TIMES.field(counts.STEP, step_ms)] += 1
        self._counts[sum_field(counts.STEP)] += step_ms
        self._counts[counts.STEP_SIZE] += size
        self._counts[counts.STEP_SIZE_SQUARED] += size * size
        self._counts[counts.STEP_SIZE_SECONDS] += size * step_s

    def record_success(self, job: GenerationJob) -> None:
        """Counts a finished job and resets the faults. A step proves nothing: NaN passes through steps unnoticed."""
        self.faults = 0
        self._faulty_jobs.clear()
        self._counts[counts.JOBS] += 1
        demand = _memory_demand(job)
        if not self.has_completed(job):
            self._completed = [each for each in self._completed if not _includes(demand, each)] + [demand]

    def has_completed(self, job: GenerationJob) -> bool:
        """Returns whether this process has finished a job that needs as much memory."""
        return any(_includes(each, _memory_demand(job)) for each in self._completed)

    def record_fault(self, job: GenerationJob | None) -> bool:
        """Counts an unexpected error; `job` is None if several jobs failed. Returns whether the job may be to blame.

        It may if it is the first to fail since the last success, or since loading, which has shown that the model runs;
        and at every third of its failures in a row while no other job fails."""
        self.faults += 1
        self._faulty_jobs.add(job.id if job else "")
        return len(self._faulty_jobs) == 1 and self.faults % 3 == 1


def _memory_demand(job: GenerationJob) -> tuple[int, int]:
    """Returns the pixels of all frames and the number of input images."""
    request = job.request
    return request.width * request.height * (request.video.frames if request.video else 1), len(job.inputs.keys)


def _includes(demand: tuple[int, int], other: tuple[int, int]) -> bool:
    return demand[0] >= other[0] and demand[1] >= other[1]


NO_MEMORY = Failed("not enough memory for this image: ask for a smaller size or fewer references")
MEMORY_BUSY = Interrupted("the model has no memory for this request at the moment", blame=False)
BROKEN = Interrupted("the model could not process this request", blame=True)
NOTHING_USABLE = Interrupted("the model made nothing usable of this request", blame=True)
DEVICE_BROKEN = Interrupted("the device that the model runs on failed", blame=False)
STORAGE_UNREACHABLE = Interrupted("the service's storage is out of reach", blame=False, counts=False)
TEXT_ENCODER_UNREACHABLE = Interrupted("the service's text encoder is out of reach", blame=False, counts=False)
DEADLINE_PASSED = Failed("the deadline passed before the image was done")


def deadline_infeasible(needed_s: float, remaining_s: float) -> Failed:
    """Returns the end of a job that can't be done in the time left."""
    return Failed(
        f"this can't be done before its deadline: it would take {_duration_text(needed_s)} more, and "
        f"{_duration_text(remaining_s)} are left; "
        "fewer steps or a smaller size take less"
    )


def fail(handle: RequestHandle, error: Exception, health: Health) -> None:
    """Ends the request that caused `error`."""
    blame, fits = True, health.has_completed(handle.job)
    if not isinstance(error, (JobError, OutOfMemory, Unavailable)):
        blame = health.record_fault(handle.job)
        log.error("job %s failed", handle.job.id, exc_info=error)
    handle.end(failure_event(error, blame=blame, fits=fits))


def failure_event(error: Exception, *, blame: bool, fits: bool = False) -> Failed | Interrupted:
    """Returns the end of a job that failed alone with `error`.

    An unexpected error may come from this replica and not the job, so another attempt decides. `blame` says whether it
    counts against the job: not if the model has finished nothing since it last failed. Running out of memory is no
    fault of a job that `fits`, as one of its size was finished before, nor where other processes hold memory.
    """
    match error:
        case JobError():
            return Failed(str(error), moderated=isinstance(error, ContentFlagged))
        case OutOfMemory(shared_gpu_memory=is_shared):
            return MEMORY_BUSY if is_shared or fits else NO_MEMORY
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
