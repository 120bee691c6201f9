"""One leased attempt at a task in this process: what it is made with, and how it can end without an outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from deployments.contract.events import Event
from deployments.contract.job import GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.telemetry.tracing import OFF, Attributes, Tracer
from serve_app.moderation.gate import Gate
from serve_app.tasks.task import Lease

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


class GivenUp(Unavailable):
    """The model gave the attempt up, and does not blame the job. Its text is fit for the client."""


class Stale(Exception):
    """The lease was lost: another attempt owns the task, or it has ended."""


class Stream(Protocol):
    """A running call of a model. Work stops only by `cancel`."""

    def __aiter__(self) -> AsyncIterator[Event]: ...
    def cancel(self) -> None: ...


@dataclass(eq=False, slots=True)
class Attempt:
    lane: str
    lease: Lease
    work: asyncio.Task[None] | None = None
    """Carries it out in this process."""
    stream: Stream | None = None
    """The model's part of it, once it was called."""
    started: bool = False
    stopped: bool = False
    """Its task was cancelled or has ended, or belongs to someone else: nothing more is to be done for it."""
    completing: bool = False
    """The outcome is being published: a heartbeat that finds the task gone is right, and no reason to stop."""
    device_s: float = 0.0
    """How much of its device's time the model spent on it, once it has told."""
    leased: float = field(default_factory=time.monotonic)
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
        return {"gen.task": lease.id, "gen.project": lease.project, "gen.lane": self.lane, "gen.attempt": lease.attempt}

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
