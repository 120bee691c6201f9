"""The way of one task, from lease to outcome."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from obstore.exceptions import BaseError
from redis.exceptions import RedisError

from deployments.contract.events import Alive, Done, Event, Failed, Interrupted, Preview, Progress, Started
from deployments.contract.job import GenerationJob, Output
from deployments.contract.objects import ObjectStore
from deployments.contract.thresholds import Tolerance
from serve_app.dispatch.jobs import checkpoint_of, job_of, result_of
from serve_app.moderation.gate import RESULTS, UNJUDGED, Gate, Leaving, Unjudged
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease, Status

logger = logging.getLogger(__name__)

MODERATION_REASONS = "Moderation Reasons"
UNJUDGED_ERROR = "This could not be checked, since moderation was out of reach for too long; nothing was charged"
_PROGRESS_EVERY_S = 0.2


class WorkerLost(Exception):
    """The model stopped answering, or its stream ended without an outcome."""


class NotStarted(Exception):
    """The model did not begin in time; nothing speaks against the task."""


class Broke(Exception):
    """The attempt ended without an outcome, and it may be the job's fault. Its text is fit for the client."""


class OutOfReach(Exception):
    """The attempt ended without an outcome, and it is not the job's fault."""


class Stale(Exception):
    """The lease was lost: another attempt owns the task, or it has ended."""


class Stream(Protocol):
    """A running call of a model. Work stops only by `cancel`."""

    def __aiter__(self) -> AsyncIterator[Event]: ...
    def cancel(self) -> None: ...


@dataclass(eq=False, slots=True)
class Flight:
    """One leased attempt in this process."""

    lane: str
    lease: Lease
    stream: Stream | None = None
    started: bool = False
    rewriting: bool = False
    """Its prompt is with the rewriter; the model has not been called yet."""
    completing: bool = False
    """The outcome is being published: a heartbeat that finds the task gone is right, and no reason to stop."""
    work_began: float = field(default_factory=time.time)

    @property
    def held(self) -> tuple[str, int]:
        return self.lease.id, self.lease.attempt


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds. `start_s` from the call to the first event, `stall_s` between any two after that.

    `run_s` from the first start of work to the end, all attempts together; None: what the store allows any task.
    """

    start_s: float
    stall_s: float
    rewrite_s: float = 10.0
    run_s: float | None = None


@dataclass(frozen=True, slots=True)
class Means:
    """What work on a task is done with: the model, and where there are, the rewriter of prompts and moderation.

    In `objects` models keep how far they are with a video, which is deleted with its end.
    """

    call: Callable[[GenerationJob], Stream]
    patience: Patience
    rewrite: Callable[[str, int], Awaitable[str]] | None = None
    gate: Gate | None = None
    objects: ObjectStore | None = None


async def carry_out(
    flight: Flight,
    means: Means,
    store: TaskStore,
    on_change: Callable[[], None],
    draining: Callable[[], bool] = lambda: False,
) -> None:
    """Decide what is open, let the model work, publish what came of it.

    `on_change` is called whenever room for further tasks may have come; nothing new is begun while `draining`.
    Returns once the outcome is published. Raises the exceptions above, and whatever the stream raises; then
    nothing was published, and the caller gives the task back.
    """
    work = _Work(flight, store, means.patience.run_s)
    try:
        if not await _is_refused(work, means.gate, draining):
            job = await _decide(work, means, on_change)
            if draining():
                raise NotStarted
            flight.stream = means.call(job)
            await _follow(work, job, means, on_change, draining)
    except Unjudged:
        await work.publish(Status.ERROR, details={"error": UNJUDGED_ERROR})
    except Leaving:
        raise OutOfReach("the moderator") from None
    if means.objects is not None and work.spec.get("clip"):
        await _forget_checkpoint(means.objects, flight.lease.id)


async def _forget_checkpoint(objects: ObjectStore, task_id: str) -> None:
    """What can't be deleted now is found later: see Upkeep."""
    try:
        await objects.delete([checkpoint_of(task_id)])
    except (BaseError, OSError) as problem:
        logger.warning("the checkpoint of %s is not deleted yet: %s", task_id, type(problem).__name__)


async def _is_refused(work: _Work, gate: Gate | None, draining: Callable[[], bool]) -> bool:
    """Whether the request was too much for the moderator, and the task has ended with that."""
    if gate is None:
        return False
    spec = work.spec
    single = [spec[role] for role in ("control", "image_prompt", "start_video") if spec.get(role)]
    reasons = await gate.request(spec["prompt"], [*spec["references"], *single], work.tolerance, draining)
    if reasons:
        await work.publish(Status.REQUEST_MODERATED, details={MODERATION_REASONS: reasons})
    return bool(reasons)


async def _follow(
    work: _Work, job: GenerationJob, means: Means, on_change: Callable[[], None], draining: Callable[[], bool]
) -> None:
    """Passes on what the model tells, to its outcome."""
    flight, gate = work.flight, means.gate
    async for event in _events(flight, means.patience):
        match event:
            case Started():
                flight.started = True
                flight.work_began = time.time()
                on_change()
                await work.advance(Status.GENERATING, progress=0.0)
            case Progress(fraction):
                await work.note(progress=fraction)
            case Preview(key, step, steps):
                if gate is not None:
                    key = await gate.preview(key, work.tolerance)
                if key is not None:
                    await work.note(preview={"key": key, "step": step, "steps": steps})
            case Done(output):
                await _end(work, job, output, gate, draining)
                return
            case Failed(reason):
                await work.publish(Status.ERROR, details={"error": reason})
                return
            case Interrupted(reason, blame):
                raise Broke(reason) if blame else OutOfReach(reason)
            case Alive():
                pass
    raise WorkerLost("the stream ended without an outcome")


async def _end(
    work: _Work, job: GenerationJob, output: Output, gate: Gate | None, draining: Callable[[], bool]
) -> None:
    """Publishes the result, if it may be shown."""
    result = result_of(job, output, work.flight.work_began)
    if gate is not None:
        reasons = await gate.output(output.key, work.tolerance, draining)
        if reasons:
            await gate.discard(*filter(None, (output.key, output.draft)))
            await work.publish(Status.CONTENT_MODERATED, details={MODERATION_REASONS: reasons})
            return
        result["key"] = await gate.release(output.key)
        if draft := result.get("draft"):
            draft["key"] = await gate.release(draft["key"])
    await work.publish(Status.READY, result=result)


async def _decide(work: _Work, means: Means, on_rewriting: Callable[[], None]) -> GenerationJob:
    """Fills in what submission left open: the final prompt, and the ratio where the prompt decides it."""
    flight, spec = work.flight, work.spec
    prompt = spec["prompt"]
    rewrite = means.rewrite if spec.get("rewrite") else None
    if rewrite is not None or spec["width"] is None:
        await work.advance(Status.REASONING)
    if rewrite is not None:
        flight.rewriting = True
        on_rewriting()
        prompt = await _rewritten(rewrite, prompt, spec["seed"], means.patience.rewrite_s)
        flight.rewriting = False
    return job_of(spec, flight.lease, prompt, RESULTS if means.gate is None else UNJUDGED)


async def _rewritten(rewrite: Callable[[str, int], Awaitable[str]], prompt: str, seed: int, patience_s: float) -> str:
    """The prompt enriched, or as it is when that fails or takes too long: no task is worth less for it."""
    try:
        async with asyncio.timeout(patience_s):
            return await rewrite(prompt, seed)
    except Exception as problem:
        logger.warning("a prompt was left as it is, since rewriting it failed: %s", type(problem).__name__)
        return prompt


async def _events(flight: Flight, patience: Patience) -> AsyncIterator[Event]:
    """The stream's events, with an end to waiting."""
    assert flight.stream is not None
    events = flight.stream.__aiter__()
    while True:
        try:
            limit = patience.stall_s if flight.started else patience.start_s
            yield await asyncio.wait_for(anext(events), limit)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise (WorkerLost("the stream stalled") if flight.started else NotStarted) from None


class _Work:
    """A flight's writes to the store, each fenced by its attempt."""

    def __init__(self, flight: Flight, store: TaskStore, run_s: float | None) -> None:
        self.flight = flight
        self.spec: dict[str, Any] = json.loads(flight.lease.job)
        self.tolerance = Tolerance(self.spec.get("safety_tolerance", 0), self.spec.get("safety_ceilings", {}))
        self._store = store
        self._run_s = run_s
        self._noted = 0.0

    async def advance(self, status: Status, **fields: Any) -> None:
        """Raises Stale. A store out of reach is no reason to stop: the phase is news, not truth."""
        flight = self.flight
        try:
            current = await self._store.advance(flight.lane, *flight.held, status, run_s=self._run_s, **fields)
        except RedisError as problem:
            logger.warning("could not note progress of %s: %s", flight.lease.id, type(problem).__name__)
            return
        if not current:
            raise Stale

    async def note(self, **fields: Any) -> None:
        """As `advance`, at most five times a second."""
        now = time.monotonic()
        if now - self._noted >= _PROGRESS_EVERY_S or "preview" in fields:
            self._noted = now
            await self.advance(Status.GENERATING, **fields)

    async def publish(self, status: Status, **outcome: Any) -> None:
        """Insists until the store took the outcome or refused it. Raises Stale when refused."""
        flight = self.flight
        flight.completing = True
        while True:
            try:
                published = await self._store.complete(flight.lane, *flight.held, status, **outcome)
                break
            except RedisError as problem:
                logger.warning("could not publish %s yet: %s", flight.lease.id, type(problem).__name__)
                await asyncio.sleep(0.5)
        if not published:
            raise Stale
