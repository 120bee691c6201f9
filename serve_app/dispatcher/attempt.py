"""An attempt at a task, from lease to outcome: prepare, moderate, run, publish."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from obstore.exceptions import BaseError
from redis.exceptions import RedisError

from deployments.contract.events import LAST, Alive, Done, Event, Failed, Interrupted, Preview, Progress, Started
from deployments.contract.job import GenerationJob, Output, checkpoint_key
from deployments.contract.objects import UNREACHABLE, ObjectStore
from deployments.telemetry.tracing import OFF, Attributes, Kind, Span, Tracer
from serve_app.dispatcher.generation import build_result, close_ratio, generation_job
from serve_app.moderation.gate import DispatcherDraining, Gate, Unmoderated
from serve_app.schemas.layout import caption
from serve_app.tasks.payload import TaskPayload
from serve_app.tasks.reader import UNREADABLE
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease, Status

logger = logging.getLogger(__name__)

Write: TypeAlias = Callable[[str, int], Awaitable[str]]
"""What the rewriter writes of a prompt, by a seed."""


class WorkerLost(Exception):
    """The model stopped answering, or its stream ended without an outcome."""


class NotStarted(Exception):
    """The model did not begin in time; nothing speaks against the task."""


class Broke(Exception):
    """The attempt ended without an outcome, and it may be the job's fault. Its text is fit for the client."""


class Unavailable(Exception):
    """The attempt ended without an outcome, and it is not the job's fault."""


class Aborted(Unavailable):
    """The model gave the attempt up, and does not blame the job. Its text is fit for the client."""


class Stale(Exception):
    """The lease was lost: another attempt owns the task, or it has ended."""


class Stream(Protocol):
    """A running call of a model. Work stops only by `cancel`."""

    def __aiter__(self) -> AsyncIterator[Event]: ...
    def cancel(self) -> None: ...


@dataclass(eq=False, slots=True)
class Attempt:
    queue: str
    lease: Lease
    work: asyncio.Task[None] | None = None
    """Carries it out in this process."""
    stream: Stream | None = None
    """The model's part of it, once it was called."""
    started: bool = False
    stopped: bool = False
    """Its task was cancelled or has ended, or belongs to someone else: nothing more is to be done for it."""
    ended: bool = False
    """Its task has ended: no other attempt will go on from its checkpoint."""
    completing: bool = False
    """The outcome is being published: a heartbeat that finds the task gone is right, and no reason to stop."""
    device_s: float = 0.0
    """How much of its device's time the model spent on it, once it has told."""
    leased_at: float = field(default_factory=time.monotonic)
    """Monotonic, as `work_began`: the wall clock may be set meanwhile."""
    work_began: float = field(default_factory=time.monotonic)
    traceparent: str = ""
    """Of its span, while it is worked on."""

    @property
    def key(self) -> tuple[str, int]:
        """The task's id and the attempt's number, which every write to the store names."""
        return self.lease.id, self.lease.attempt

    @property
    def attributes(self) -> Attributes:
        """What its spans say of it."""
        lease = self.lease
        return {
            "gen.task": lease.id,
            "gen.project": lease.project,
            "gen.queue": self.queue,
            "gen.attempt": lease.attempt,
        }

    def stop(self) -> None:
        """Stops whatever is being done, unless the outcome is on its way already."""
        if self.completing:
            return
        self.stopped = True
        if self.stream is not None:
            self.stream.cancel()
        elif self.work is not None:
            self.work.cancel()


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `start_s` from the call to the first event, `stall_s` between any two after that.

    `run_s` from the first start of work to the end, all attempts together; None: what the store allows any task, which
    the model is not told.
    """

    start_s: float
    stall_s: float
    rewrite_s: float = 10.0
    run_s: float | None = None


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What attempts are made with: the model, and where there are, the rewriter of prompts and moderation.

    The rewriter gets a prompt and a seed: `rewrite` gives the new prompt, `rewrite_edit` that of an edit, and `ratio` a
    text that says which ratio suits it. In `objects` models keep how far they are with a video, which is deleted with
    its end.
    """

    call: Callable[[GenerationJob], Stream]
    timeouts: Timeouts
    rewrite: Write | None = None
    gate: Gate | None = None
    objects: ObjectStore | None = None
    rewrite_edit: Write | None = None
    ratio: Write | None = None
    tracer: Tracer = OFF
    on_report: Callable[[Mapping[str, float], Mapping[str, str]], None] = lambda counts, setup: None
    """Gets what replicas tell of themselves."""
    on_step: Callable[[int, float], None] = lambda batch, step_s: None
    """Gets how many took a step together, and its seconds."""


MODERATION_REASONS = "Moderation Reasons"
SAFETY_CHECKER = "Safety Checker"
"""The reason where the model's own checker withholds a result."""
WARNINGS = "warnings"
NOT_REWRITTEN = "The prompt was used as it was sent: rewriting it had no effect"
UNMODERATED_ERROR = "This could not be checked, since moderation was out of reach for too long; nothing was charged"
_PROGRESS_EVERY_S = 0.2


async def _at_once() -> None:
    pass


async def run_attempt(
    attempt: Attempt,
    dependencies: Dependencies,
    store: TaskStore,
    *,
    turn: Callable[[], Awaitable[None]] = _at_once,
    on_start: Callable[[], None] = lambda: None,
    draining: Callable[[], bool] = lambda: False,
    fault: str | None = None,
) -> None:
    """Decides what is open, lets the model work, publishes what came of it; at once where the model has a `fault`.

    The model is called when `turn` has returned; `on_start` is called when it has begun; nothing new is begun while
    `draining`.
    Returns once the outcome is published. Raises NewerJob, the exceptions of attempt.py, and whatever the stream
    raises; then nothing was published, and the caller gives the task back.
    """
    writer = _Writer(attempt, store, dependencies.timeouts.run_s, dependencies.tracer)
    if not attempt.lease.job:
        await writer.publish(Status.ERROR, details={"error": UNREADABLE})
        return
    payload = TaskPayload.decode(attempt.lease.job)
    try:
        if fault is not None:
            await writer.publish(Status.ERROR, details={"error": fault})
        elif not await _moderate_request(payload, writer, dependencies.gate, draining):
            payload = await _resolve(payload, writer, dependencies, draining)
            await turn()
            if attempt.stopped:
                raise Stale
            if draining():
                raise NotStarted
            output = await _run_model(payload, writer, dependencies, on_start)
            if output is not None:
                await _publish_result(payload, output, writer, dependencies, draining)
        attempt.ended = True
    except Unmoderated:
        await writer.publish(Status.ERROR, details={"error": UNMODERATED_ERROR})
        attempt.ended = True
    except DispatcherDraining:
        raise Unavailable("the moderator") from None
    finally:
        if attempt.ended and dependencies.objects is not None and payload.request.video is not None:
            await _forget_checkpoint(dependencies.objects, attempt.lease.id)


async def _forget_checkpoint(objects: ObjectStore, task_id: str) -> None:
    """What can't be deleted now goes with the task's other objects."""
    try:
        await objects.delete([checkpoint_key(task_id)])
    except (BaseError, OSError) as problem:
        logger.warning("the checkpoint of %s is not deleted yet: %s", task_id, type(problem).__name__)


async def _moderate_request(
    payload: TaskPayload, writer: _Writer, gate: Gate | None, draining: Callable[[], bool]
) -> bool:
    """Whether the request was too much for the moderator, and the task has ended with that."""
    if gate is None:
        return False
    request, inputs = payload.request, replace(payload.inputs, mask=None, draft=None)
    with writer.span("moderate request"):
        reasons = await gate.request(
            f"{request.prompt}\n{request.negative_prompt}".strip(), list(inputs.keys), payload.safety, draining
        )
    if reasons:
        await writer.publish(Status.REQUEST_MODERATED, details={MODERATION_REASONS: reasons})
    return bool(reasons)


async def _resolve(
    payload: TaskPayload, writer: _Writer, dependencies: Dependencies, draining: Callable[[], bool]
) -> TaskPayload:
    """Decides what submission left open: the final prompt, and the ratio where the prompt decides it."""
    request, references = payload.request, payload.inputs.references
    prompt, ratio_said, warnings = request.prompt, "", list[str]()
    rewrite = (dependencies.rewrite_edit if references else dependencies.rewrite) if request.rewrite else None
    if rewrite is not None or request.open_ratio:
        await writer.advance(Status.REASONING)
    if rewrite is not None:
        with writer.span("rewrite"):
            rewritten_prompt = await _rewrite(rewrite, prompt, request.seed, dependencies.timeouts.rewrite_s)
        gate = dependencies.gate
        is_usable = bool(rewritten_prompt) and await _is_prompt_allowed(
            rewritten_prompt, payload, writer, gate, draining
        )
        if is_usable:
            prompt = rewritten_prompt
        # A model that knows no chats leaves every edit as it is.
        if not is_usable or (references and prompt == request.prompt):
            warnings.append(NOT_REWRITTEN)
    if request.open_ratio and dependencies.ratio is not None:
        with writer.span("choose ratio"):
            ratio_said = await _rewrite(
                dependencies.ratio, caption(prompt), request.seed, dependencies.timeouts.rewrite_s
            )
    request = replace(close_ratio(request, ratio_said), prompt=prompt, rewrite=False)
    return replace(payload, request=request, warnings=(*payload.warnings, *warnings), is_moderated=True)


async def _is_prompt_allowed(
    rewritten_prompt: str, payload: TaskPayload, writer: _Writer, gate: Gate | None, draining: Callable[[], bool]
) -> bool:
    """A rewriter may spell out what its client hid from the moderator; the client's own words have passed."""
    if gate is None or rewritten_prompt == payload.request.prompt:
        return True
    with writer.span("moderate rewritten"):
        reasons = await gate.request(rewritten_prompt, [], payload.safety, draining)
    if reasons:
        logger.warning("a task goes on with its own prompt: %s in what was rewritten", ", ".join(reasons))
    return not reasons


async def _rewrite(write: Write, prompt: str, seed: int, timeout_s: float) -> str:
    """What the rewriter writes, or nothing when it fails or takes too long: no task is worth less for it."""
    try:
        async with asyncio.timeout(timeout_s):
            return await write(prompt, seed)
    except Exception as problem:
        logger.warning("a task goes on without the rewriter, which failed: %s", type(problem).__name__)
        return ""


async def _run_model(
    payload: TaskPayload, writer: _Writer, dependencies: Dependencies, on_start: Callable[[], None]
) -> Output | None:
    """What the model makes of the job; None where it can't be done, and the task has ended with that."""
    with writer.span("model", "client") as span:
        # Below this span the model writes its own.
        model_job = replace(
            generation_job(payload, writer.attempt.lease),
            remaining_s=_remaining_s(writer.attempt, dependencies.timeouts),
            traceparent=span.traceparent,
        )
        writer.attempt.stream = dependencies.call(model_job)
        return await _follow(payload, writer, dependencies, on_start)


def _remaining_s(attempt: Attempt, timeouts: Timeouts) -> float | None:
    """By the store's clock at the lease, and this process' since."""
    if attempt.lease.remaining_s is None:
        return timeouts.run_s
    return max(0.0, attempt.lease.remaining_s - (time.monotonic() - attempt.leased_at))


async def _follow(
    payload: TaskPayload, writer: _Writer, dependencies: Dependencies, on_start: Callable[[], None]
) -> Output | None:
    """Passes on what the model tells, to the end of its part."""
    attempt, gate = writer.attempt, dependencies.gate
    async for event in _events(attempt, dependencies.timeouts):
        if isinstance(event, LAST):
            attempt.device_s = event.took_s
        match event:
            case Started():
                attempt.started = True
                attempt.work_began = time.monotonic()
                on_start()
                await writer.advance(Status.GENERATING, progress=0.0)
            case Progress(fraction):
                if timing := event.step_timing:
                    dependencies.on_step(*timing)
                await writer.note(progress=fraction)
            case Preview():
                if gate is None or await gate.preview(event.key, payload.safety):
                    await writer.note(preview=event)
            case Done(output):
                return output
            case Failed(reason) if event.was_moderated:
                await writer.publish(Status.CONTENT_MODERATED, details={MODERATION_REASONS: [SAFETY_CHECKER]})
                return None
            case Failed(reason):
                await writer.publish(Status.ERROR, details={"error": reason})
                return None
            case Interrupted(reason, blame, counts):
                if blame:
                    raise Broke(reason)
                raise Aborted(reason) if counts else Unavailable(reason)
            case Alive():
                if event.report is not None:
                    dependencies.on_report(*event.report)
    raise WorkerLost("the stream ended without an outcome")


async def _events(attempt: Attempt, timeouts: Timeouts) -> AsyncIterator[Event]:
    """The stream's events, with an end to waiting."""
    assert attempt.stream is not None
    events = attempt.stream.__aiter__()
    while True:
        try:
            limit = timeouts.stall_s if attempt.started else timeouts.start_s
            yield await asyncio.wait_for(anext(events), limit)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise (WorkerLost("the stream stalled") if attempt.started else NotStarted) from None


async def _publish_result(
    payload: TaskPayload,
    output: Output,
    writer: _Writer,
    dependencies: Dependencies,
    draining: Callable[[], bool],
) -> None:
    """Publishes the result, if it may be shown. Of a task that was cancelled meanwhile, no file stays."""
    gate, objects = dependencies.gate, dependencies.objects
    result = build_result(payload.request, output, time.monotonic() - writer.attempt.work_began)
    if gate is not None:
        with writer.span("moderate result"):
            reasons = await gate.output(output.proxy or output.key, payload.safety, draining)
        if reasons:
            await gate.discard(output.files)
            await writer.publish(Status.CONTENT_MODERATED, details={MODERATION_REASONS: reasons})
            return
    warnings = [*payload.warnings, *output.warnings]
    details = {WARNINGS: warnings} if warnings else None
    try:
        await writer.publish(Status.READY, result=result, details=details)
    except Stale:
        with suppress(*UNREACHABLE):  # else they go with the task's other objects
            if objects is not None:
                await objects.delete(output.files)
        raise


class _Writer:
    """An attempt's writes to the store, each fenced by its number."""

    def __init__(self, attempt: Attempt, store: TaskStore, run_s: float | None, tracer: Tracer) -> None:
        self.attempt = attempt
        self._tracer = tracer
        self._store = store
        self._run_s = run_s
        self._last_write = 0.0

    def span(self, name: str, kind: Kind = "internal") -> AbstractContextManager[Span]:
        """Of a part of the attempt."""
        return self._tracer.span(name, self.attempt.traceparent, self.attempt.attributes, kind)

    async def advance(self, status: Status, **fields: Any) -> None:
        """Raises Stale. A store out of reach is no reason to stop: the phase is news, not truth."""
        attempt, self._last_write = self.attempt, time.monotonic()
        try:
            current = await self._store.advance(attempt.queue, *attempt.key, status, run_s=self._run_s, **fields)
        except RedisError as problem:
            logger.warning("could not note progress of %s: %s", attempt.lease.id, type(problem).__name__)
            return
        if not current:
            raise Stale

    async def note(self, **fields: Any) -> None:
        """As `advance`, at most five times a second all in all."""
        if time.monotonic() - self._last_write >= _PROGRESS_EVERY_S or "preview" in fields:
            await self.advance(Status.GENERATING, **fields)

    async def publish(self, status: Status, **outcome: Any) -> None:
        """Insists until the store took the outcome or refused it. Raises Stale when refused."""
        attempt = self.attempt
        attempt.completing = True
        with self.span("publish") as span:
            span.note("gen.status", status.value)
            while True:
                try:
                    is_accepted = await self._store.complete(
                        attempt.queue, *attempt.key, status, device_s=attempt.device_s, **outcome
                    )
                    break
                except RedisError as problem:
                    logger.warning("could not publish %s yet: %s", attempt.lease.id, type(problem).__name__)
                    await asyncio.sleep(0.5)
        if not is_accepted:
            raise Stale
