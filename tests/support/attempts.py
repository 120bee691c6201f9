"""One attempt at a task with a fake store, model and classifiers, without Redis and Ray."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from deployments.contract.events import Done, Event, Preview, Started
from deployments.contract.job import GenerationJob, Output
from deployments.contract.moderation import Scores, Thresholds, Tolerance
from deployments.contract.objects import ObjectStore
from serve_app.dispatcher.attempt import Attempt, AttemptContext, Timeouts
from serve_app.dispatcher.concurrency import ConcurrencyLimiter
from serve_app.moderation.gate import Gate
from serve_app.tasks.payload import TaskPayload
from serve_app.tasks.scripts import ReleaseCause, ReleaseOutcome
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease, Status
from support.dispatchers import CallModel, fake_rewriter
from support.payloads import new_payload

THRESHOLDS = Thresholds({"violence": (0.2, 0.4, 0.6)})


@dataclass
class FakeStore:
    """Records the writes of an attempt."""

    objects: ObjectStore
    accepts: bool = True
    limits_s: set[float | None] = field(default_factory=set)
    previews: list[str] = field(default_factory=list)
    status: Status | None = None
    outcome: dict[str, Any] = field(default_factory=dict)
    files_at_end: list[str] = field(default_factory=list)
    releases: list[ReleaseCause] = field(default_factory=list)
    resolved: TaskPayload | None = None
    """Payload for later attempts."""

    async def advance(
        self, *_: Any, preview: Preview | None, resolved: TaskPayload | None, run_s: float | None, **__: Any
    ) -> bool:
        self.resolved = resolved or self.resolved
        self.limits_s.add(run_s)
        self.previews += [preview.key] if preview else []
        return True

    async def complete(
        self, queue: str, task_id: str, attempt: int, status: Status, *, device_s: float, **outcome: Any
    ) -> bool:
        if self.accepts:
            self.status, self.outcome = status, {name: part for name, part in outcome.items() if part is not None}
            self.files_at_end = await self.objects.keys("results")
        return self.accepts

    async def release(
        self, queue: str, task_id: str, attempt: int, cause: ReleaseCause, reason: str, *, resolved: TaskPayload | None
    ) -> ReleaseOutcome:
        self.resolved = resolved or self.resolved
        self.releases.append(cause)
        return ReleaseOutcome.REQUEUED


class FakeModel:
    """Stores a preview and an image, for a video also its latents and a checkpoint.

    `first` is raised before the start. `last` replaces the last event, after `before_last`.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self.jobs: list[GenerationJob] = []
        self.events: list[Event] = []
        self.first: Exception | None = None
        self.last: Event | Exception | None = None
        self.before_last = asyncio.Event()
        self.before_last.set()
        self.warnings: tuple[str, ...] = ()
        self._objects = objects

    def call(self, job: GenerationJob) -> FakeModel:
        self.jobs.append(job)
        return self

    async def __aiter__(self) -> AsyncIterator[Event]:
        job = self.jobs[-1]
        if self.first is not None:
            raise self.first
        yield Started()
        for event in self.events:
            yield event
        names = ["preview-1.jpeg", "image.png", "thumbnail.jpeg"]
        keys = [f"{job.output_prefix}/{name}" for name in names]
        draft = f"{job.output_prefix}/draft.safetensors" if job.request.video else None
        for key in (*keys, *([draft, job.checkpoint] if draft else [])):
            await self._objects.put(key, b"x", "image/png")
        yield Preview(keys[0], 1, 3)
        await self.before_last.wait()
        if isinstance(self.last, Exception):
            raise self.last
        done = Output(keys[1], "image/png", 64, 64, 1, draft, keys[2], self.warnings, proxy=keys[2], previews=(1,))
        yield self.last or Done(done)

    def cancel(self) -> None:
        """Does nothing; the stream continues."""


class FakeClassifiers:
    """Scores objects by the last part of their key, and texts. Subjects for which `fails` is true raise."""

    def __init__(self, scores: dict[str, float], fails: Callable[[str], bool] = lambda subject: False) -> None:
        self.scores = scores
        self.subjects: list[str] = []
        self._fails = fails
        self.moderate_object = self.moderate_text

    async def moderate_text(self, text: str) -> Scores:
        self.subjects.append(text)
        if self._fails(text):
            raise ConnectionError("gone")
        return {"violence": self.scores.get(text.rpartition("/")[2], 0.0)}


class AttemptScene:
    """One task and the dependencies of an attempt at it. `scores` turns moderation on."""

    def __init__(
        self, scores: dict[str, float] | None = None, fails: Callable[[str], bool] = lambda subject: False
    ) -> None:
        self.objects = ObjectStore("memory:///")
        self.store = FakeStore(self.objects)
        self.model = FakeModel(self.objects)
        self.limiter = ConcurrencyLimiter(4, 16)
        self.timeouts = Timeouts(1, 1)
        self.rewriter = fake_rewriter()
        self.classifiers = FakeClassifiers(scores or {}, fails)
        self.gate = None if scores is None else Gate(self.classifiers, THRESHOLDS, wait_s=0)
        self.context: AttemptContext | None = None

    def attempt(self, remaining_s: float | None = None, number: int = 1, **job: Any) -> Attempt:
        payload = self.store.resolved or new_payload(
            **{"references": ("inputs/t/0.png",), "prompt": "two knights", "safety": Tolerance(2)} | job
        )
        lease = Lease("t", number, exclusive=False, created=0.0, payload=payload.encode(), remaining_s=remaining_s)
        self.context = AttemptContext(
            "model",
            cast(TaskStore, self.store),
            self.objects,
            CallModel(self.model.call),
            self.limiter,
            self.timeouts,
            self.rewriter,
            self.gate,
        )
        attempt = Attempt(self.context, lease)
        self.limiter.admit(attempt.key)
        return attempt
