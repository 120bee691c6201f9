"""One attempt at a task, from its lease to its outcome: moderate, resolve, generate, publish."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from redis.exceptions import RedisError

from deployments.contract.events import Alive, Done, Failed, Interrupted, Preview, Progress, Started
from deployments.contract.job import RESULTS, GenerationJob, Output, checkpoint_key
from deployments.contract.moderation import Tolerance
from deployments.contract.objects import UNREACHABLE, ObjectStore
from deployments.contract.request import ResolvedRequest
from deployments.telemetry import logs
from deployments.telemetry.tracing import OFF, Span, SpanType, Tracer, trace_id
from serve_app.background import is_cancelled
from serve_app.dispatcher.clients import EventStream, ModelClient, ReplicaReports, RewriterClient
from serve_app.dispatcher.concurrency import AttemptKey, ConcurrencyLimiter
from serve_app.dispatcher.failures import (
    AttemptInterrupted,
    Decision,
    LeaseLost,
    ReplicaBusy,
    ReplicaLost,
    classify,
)
from serve_app.inputs.geometry import DEFAULT_RATIO, RATIOS, ratio_from_prompt, size_within, video_ratio, video_size
from serve_app.moderation.gate import DispatcherDraining, Gate, Unmoderated
from serve_app.schemas.layout import caption
from serve_app.tasks.payload import TaskPayload
from serve_app.tasks.reads import UNREADABLE
from serve_app.tasks.result import DraftResult, GenerationResult
from serve_app.tasks.scripts import ReleaseOutcome
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease, Status

logger = logging.getLogger(__name__)

MODERATION_REASONS: Final = "Moderation Reasons"
SAFETY_CHECKER: Final = "Safety Checker"
"""Moderation reason for a result that the model's own checker withholds."""
WARNINGS: Final = "warnings"
NOT_REWRITTEN: Final = "The prompt was used as it was sent: rewriting it had no effect"
UNMODERATED_ERROR: Final = (
    "This could not be checked, since moderation was out of reach for too long; nothing was charged"
)
_PROGRESS_INTERVAL_S: Final = 0.2
_RETRY_S: Final = 0.5
"""Pause between two tries of a write that the store must take."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`start_s`: seconds from the call to the first event; `stall_s`: between any two events after that.

    `run_s`: seconds from the first start of work to the deadline, over all attempts; None leaves it to the store.
    """

    start_s: float
    stall_s: float
    run_s: float | None = None


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """Everything that all attempts at the tasks of one queue share."""

    queue: str
    store: TaskStore
    objects: ObjectStore
    model: ModelClient
    limiter: ConcurrencyLimiter
    timeouts: Timeouts
    rewriter: RewriterClient = field(default_factory=lambda: RewriterClient(None, (), 0.0))
    gate: Gate | None = None
    tracer: Tracer = OFF
    reports: ReplicaReports = field(default_factory=ReplicaReports)


class Phase(StrEnum):
    PREPARING = "preparing"
    """Moderates, resolves, and waits for a slot."""
    STARTING = "starting"
    """The model is called and has not begun."""
    RUNNING = "running"
    """The model has begun, or its result is moderated."""
    PUBLISHING = "publishing"
    """An outcome is on its way to the store: only the store can still refuse it."""
    OVER = "over"


class AttemptOutcome(StrEnum):
    PUBLISHED = "published"
    RELEASED = "released"
    """The task was given back."""
    LEASE_LOST = "lease lost"
    """The task ended otherwise or belongs to another attempt."""


class Attempt:
    """The state machine of one attempt. Every write to the store is fenced by the attempt's number."""

    def __init__(self, context: AttemptContext, lease: Lease, fault: str | None = None) -> None:
        """`fault`: error for the client if the model can't be loaded."""
        self.context = context
        self.lease = lease
        self.key: AttemptKey = lease.id, lease.attempt
        self.phase = Phase.PREPARING
        self.stream: EventStream | None = None
        """The model's part, once it is called."""
        self.is_stopped = False
        """The task ended, or belongs to another attempt: nothing more is to be done for it."""
        self._fault = fault
        self._work: asyncio.Task[Any] | None = None
        self._attributes = {
            "gen.task": lease.id,
            "gen.project": lease.project,
            "gen.queue": context.queue,
            "gen.attempt": lease.attempt,
        }
        self._traceparent = ""
        self._payload: TaskPayload | None = None
        self._resolved: TaskPayload | None = None
        """The payload for later attempts, until it is stored."""
        self._newest_preview: Preview | None = None
        self._preview_task: asyncio.Task[None] | None = None
        self._leased_at = time.monotonic()
        self._started_at: float | None = None
        self._last_write_at = 0.0
        self._device_s = 0.0
        self._has_task_ended = False
        self._leftovers: list[str] = []
        """Keys of the files that nothing refers to."""

    @property
    def has_started(self) -> bool:
        """True once the model began with the job."""
        return self._started_at is not None

    def stop(self, *, task_ended: bool = False) -> None:
        """Stops the work and frees its slot, unless an outcome is being published. Idempotent.

        `task_ended`: no other attempt will go on from the task's checkpoint.
        """
        self._has_task_ended = self._has_task_ended or task_ended
        if self.is_stopped or self.phase in (Phase.PUBLISHING, Phase.OVER):
            return
        self.is_stopped = True
        self.cancel_work()

    def cancel_work(self) -> None:
        if self.stream is not None:
            self.stream.cancel()
        if self._work is not None:
            self._work.cancel()

    async def run(self) -> AttemptOutcome:
        """Works on the task until its outcome is published, it is given back, or the lease is lost."""
        self._work = asyncio.current_task()
        lease, tracer = self.lease, self.context.tracer
        logs.bind(
            task=lease.id,
            project=lease.project,
            queue=self.context.queue,
            attempt=lease.attempt,
            trace=trace_id(lease.traceparent),
        )
        if lease.attempt == 1:
            tracer.record("queue", lease.traceparent, lease.created, lease.leased_at, self._attributes)
        try:
            try:
                with tracer.span("attempt", lease.traceparent, self._attributes, "consumer") as span:
                    self._traceparent = span.traceparent
                    await self._take_steps()
                outcome = AttemptOutcome.PUBLISHED
            except LeaseLost:
                logger.info("%s, attempt %d, has ended or belongs to another attempt", *self.key)
                outcome = AttemptOutcome.LEASE_LOST
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                decision = classify(error, lease, has_started=self.has_started)
                logger.warning("giving back %s, attempt %d (%s): %s", *self.key, decision.cause, type(error).__name__)
                await asyncio.sleep(decision.pause_s)
                outcome = await self.release(decision)
        except asyncio.CancelledError:
            if not self.is_stopped:
                raise
            logger.info("the work on %s, attempt %d, is stopped", *self.key)
            outcome = AttemptOutcome.LEASE_LOST
        finally:
            self.phase = Phase.OVER
            if self.stream is not None:
                self.stream.cancel()
            self.context.limiter.release(self.key)
        if self._has_task_ended and self._payload is not None and self._payload.request.has_checkpoint:
            self._leftovers.append(checkpoint_key(lease.id))
        await self._delete_leftovers()
        return outcome

    async def _take_steps(self) -> None:
        if self.is_stopped:
            raise LeaseLost
        if not self.lease.payload:
            await self._end(Status.ERROR, {"error": UNREADABLE})
            return
        payload = self._payload = TaskPayload.decode(self.lease.payload)
        if self._fault is not None:
            await self._end(Status.ERROR, {"error": self._fault})
            return
        try:
            if not payload.is_moderated:
                if not await self.moderate(payload):
                    return
                payload = self._payload = self._resolved = await self.resolve(payload)
            output = await self.generate(payload)
            if output is not None:
                await self.publish(payload, output)
        except Unmoderated:
            await self._end(Status.ERROR, {"error": UNMODERATED_ERROR})

    async def moderate(self, payload: TaskPayload) -> bool:
        """Returns whether the request may pass; else the task has ended."""
        if self.context.gate is None:
            return True
        request, inputs = payload.request, payload.inputs
        single = [key for key in (inputs.control, inputs.image_prompt, inputs.start_video) if key]
        files = [key for _, key in inputs.files]
        with self._span("moderate request"):
            reasons = await self.context.gate.request(
                request.text,
                [*inputs.references, *single, *files],
                payload.safety,
                self.context.limiter.closed,
            )
        if reasons:
            await self._end(Status.REQUEST_MODERATED, {MODERATION_REASONS: reasons})
        return not reasons

    async def resolve(self, payload: TaskPayload) -> TaskPayload:
        """Settles what submission left open, the prompt and the ratio: for this attempt and those after it."""
        request, prompt, warnings = payload.request, payload.request.prompt, payload.warnings
        rewriter, gate, is_edit = self.context.rewriter, self.context.gate, bool(payload.inputs.references)
        is_rewritten = request.rewrite and rewriter.is_enabled("edits" if is_edit else "prompts")
        if is_rewritten or request.open_ratio:
            await self._advance(Status.REASONING)
        if is_rewritten:
            with self._span("rewrite"):
                rewrite = rewriter.rewrite_edit if is_edit else rewriter.rewrite
                rewritten = await rewrite(prompt, request.seed)
            if gate is not None and rewritten not in ("", prompt):
                # A rewriter may spell out what its client hid from the moderator.
                with self._span("moderate rewritten"):
                    reasons = await gate.request(rewritten, [], payload.safety, self.context.limiter.closed)
                if reasons:
                    logger.warning("a task goes on with its own prompt: %s in the new one", ", ".join(reasons))
                    rewritten = ""
            # A model that knows no chats leaves every edit as it is.
            if not rewritten or (is_edit and rewritten == prompt):
                warnings = (*warnings, NOT_REWRITTEN)
            prompt = rewritten or prompt
        answer = ""
        if request.open_ratio and rewriter.is_enabled("ratios"):
            with self._span("choose ratio"):
                answer = await rewriter.choose_ratio(caption(prompt), request.seed)
        request = replace(close_ratio(request, answer), prompt=prompt, rewrite=False)
        return replace(payload, request=request, warnings=warnings, is_moderated=True)

    async def generate(self, payload: TaskPayload) -> Output | None:
        """Returns the model's output; None if the model can't do the job, with which the task has ended."""
        context = self.context
        await context.limiter.acquire(self.key)
        if self.is_stopped:
            raise LeaseLost
        if context.limiter.closed.is_set():
            raise DispatcherDraining
        with self._span("model", "client") as span:
            remaining_s = context.timeouts.run_s
            if self.lease.remaining_s is not None:
                remaining_s = max(0.0, self.lease.remaining_s - (time.monotonic() - self._leased_at))
            job = GenerationJob(
                *self.key,
                payload.request,
                f"{RESULTS}{self.lease.id}/{self.lease.attempt}",
                payload.inputs,
                payload.adapter,
                exclusive=self.lease.exclusive,
                remaining_s=remaining_s,
                traceparent=span.traceparent,
            )
            self.phase = Phase.STARTING
            self.stream = context.model.call(job)
            try:
                last = await self._follow(self.stream, payload.safety)
            finally:
                if self._preview_task is not None:
                    self._preview_task.cancel()
        self._device_s = last.device_s
        match last:
            case Done(output):
                self._leftovers = output.files
                return output
            case Failed() if last.moderated:
                await self._end(Status.CONTENT_MODERATED, {MODERATION_REASONS: [SAFETY_CHECKER]})
            case Failed(reason):
                await self._end(Status.ERROR, {"error": reason})
            case Interrupted():
                raise AttemptInterrupted(last)
        return None

    async def _follow(self, stream: EventStream, tolerance: Tolerance) -> Done | Failed | Interrupted:
        """Notes the stream's events in the store until the last one, which it returns."""
        context, events = self.context, aiter(stream)
        while True:
            timer = asyncio.timeout(context.timeouts.stall_s if self.has_started else context.timeouts.start_s)
            try:
                async with timer:
                    event = await anext(events)
            except StopAsyncIteration:
                raise ReplicaLost("the stream ended without an outcome") from None
            except TimeoutError:
                if not timer.expired():  # the replica's own, which Ray passes on as a TimeoutError
                    raise
                raise (ReplicaLost("the stream stalled") if self.has_started else ReplicaBusy) from None
            match event:
                case Started():
                    self.phase, self._started_at = Phase.RUNNING, time.monotonic()
                    context.limiter.mark_started(self.key)
                    await self._advance(Status.GENERATING, progress=0.0)
                case Progress(fraction):
                    if event.step_timing is not None:
                        context.reports.add_step(*event.step_timing)
                    if time.monotonic() - self._last_write_at >= _PROGRESS_INTERVAL_S:
                        await self._advance(Status.GENERATING, progress=fraction)
                case Preview():
                    self._newest_preview = event
                    if self._preview_task is None or self._preview_task.done():
                        self._preview_task = asyncio.create_task(self._show_previews(tolerance))
                case Alive():
                    if event.report is not None:
                        context.reports.add(*event.report)
                case _:
                    return event

    async def _show_previews(self, tolerance: Tolerance) -> None:
        """Moderates the newest preview and notes it in the store, beside the stream, until there is none."""
        while (preview := self._newest_preview) is not None:
            self._newest_preview = None
            try:
                if self.context.gate is None or await self.context.gate.preview(preview.key, tolerance):
                    await self._advance(Status.GENERATING, preview=preview)
            except Exception as problem:
                logger.warning("a preview of %s is not shown: %s", self.lease.id, type(problem).__name__)

    async def publish(self, payload: TaskPayload, output: Output) -> None:
        """Publishes the result, if it may be shown."""
        if self.context.gate is not None:
            with self._span("moderate result"):
                reasons = await self.context.gate.output(
                    [proxy for each in (output, *output.more) if (proxy := each.moderated)],
                    payload.safety,
                    self.context.limiter.closed,
                )
            if reasons:
                await self._delete_leftovers()
                await self._end(Status.CONTENT_MODERATED, {MODERATION_REASONS: reasons})
                return
        started_at = self._leased_at if self._started_at is None else self._started_at
        result = build_result(payload.request, output, time.monotonic() - started_at)
        warnings = [*payload.warnings, *output.warnings]
        self._leftovers = []  # from now on the store may refer to them
        try:
            await self._end(Status.READY, {WARNINGS: warnings} if warnings else None, result)
        except LeaseLost:
            self._leftovers = output.files
            raise

    async def _advance(self, status: Status, *, progress: float | None = None, preview: Preview | None = None) -> None:
        """Notes phase and progress; goes on without where the store is out of reach. Raises LeaseLost."""
        self._last_write_at = time.monotonic()
        context = self.context
        try:
            is_current = await context.store.advance(
                context.queue,
                *self.key,
                status,
                progress=progress,
                preview=preview,
                resolved=self._resolved,
                run_s=context.timeouts.run_s,
            )
        except RedisError as problem:
            logger.warning("could not note progress of %s: %s", self.lease.id, type(problem).__name__)
            return
        if not is_current:
            raise LeaseLost
        self._resolved = None

    async def _end(
        self, status: Status, details: dict[str, Any] | None, result: GenerationResult | None = None
    ) -> None:
        """Publishes the outcome: retries until the store accepts or refuses it. Raises LeaseLost when refused."""
        if self.is_stopped:
            raise LeaseLost
        self.phase = Phase.PUBLISHING
        with self._span("publish") as span:
            span.note("gen.status", status.value)
            while True:
                try:
                    is_accepted = await self.context.store.complete(
                        self.context.queue, *self.key, status, details=details, result=result, device_s=self._device_s
                    )
                    break
                except RedisError as problem:
                    logger.warning("could not publish %s yet: %s", self.lease.id, type(problem).__name__)
                    await asyncio.sleep(_RETRY_S)
        if not is_accepted:
            raise LeaseLost
        self._has_task_ended = True

    async def release(self, decision: Decision) -> AttemptOutcome:
        """Gives the task back: retries until the store answers, since an expired lease would count as a crash."""
        while not self.is_stopped:
            try:
                outcome = await self.context.store.release(
                    self.context.queue, *self.key, decision.cause, decision.reason, resolved=self._resolved
                )
                return AttemptOutcome.LEASE_LOST if outcome is ReleaseOutcome.STALE else AttemptOutcome.RELEASED
            except (Exception, asyncio.CancelledError) as problem:
                if is_cancelled():
                    raise
                logger.warning("could not give back %s yet: %s", self.lease.id, type(problem).__name__)
                await asyncio.sleep(_RETRY_S)
        return AttemptOutcome.LEASE_LOST

    async def _delete_leftovers(self) -> None:
        """Deletes the files that nothing refers to. The sweep deletes later what can't be deleted now."""
        try:
            if self._leftovers:
                await self.context.objects.delete(self._leftovers)
            self._leftovers = []
        except UNREACHABLE as problem:
            logger.warning("files of %s are not deleted yet: %s", self.lease.id, type(problem).__name__)

    def _span(self, name: str, span_type: SpanType = "internal") -> AbstractContextManager[Span]:
        return self.context.tracer.span(name, self._traceparent, self._attributes, span_type)


def close_ratio(request: ResolvedRequest, answer: str = "") -> ResolvedRequest:
    """Decides the size of a request with an open ratio.

    The ratio is the one in the rewriter's `answer`, else the one in the prompt, else the default.
    """
    if not request.open_ratio:
        return request
    ratio = RATIOS[ratio_from_prompt(answer) or ratio_from_prompt(caption(request.prompt)) or DEFAULT_RATIO]
    if request.video is not None:
        size = video_size(video_ratio(ratio), request.area, draft=request.video.draft)
    else:
        size = size_within(ratio, request.area)
    return replace(request, width=size.width, height=size.height, open_ratio=False)


def build_result(request: ResolvedRequest, output: Output, took_s: float) -> GenerationResult:
    """Returns the result of work that ended just now and took `took_s` seconds."""
    now, draft = time.time(), None
    if request.video is not None and output.draft is not None:
        video = request.video
        draft = DraftResult(output.draft, video.frames, request.width, request.height, video.audio)
    return GenerationResult(
        key=output.key,
        prompt=request.prompt,
        seed=request.seed,
        start_time=round(now - took_s, 3),
        end_time=round(now, 3),
        duration=round(took_s, 3),
        files=tuple(key.rpartition("/")[2] for key in output.files),
        thumbnail=output.thumbnail,
        draft=draft,
        more=tuple(each.key for each in output.more),
    )
