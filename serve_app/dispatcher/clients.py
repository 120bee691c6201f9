"""Clients of the deployments that dispatchers call: models, the prompt rewriter and the moderator."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

from ray.serve.handle import DeploymentHandle

from deployments.contract.events import Event
from deployments.contract.job import GenerationJob
from deployments.contract.moderation import ModeratorSpec, Scores, highest
from deployments.moderation.deployment import LocalModerator
from serve_app.storage.log_levels import LogLevels
from serve_app.tasks.reads import StepTiming
from serve_app.tasks.store import TaskStore

logger = logging.getLogger(__name__)

_LOCAL_BATCH: Final = 2
"""Batch size of the classifiers in this process, which holds twice as many images; inputs may have 100 MB."""


RewriterTask: TypeAlias = Literal["prompts", "edits", "ratios"]
_Classify: TypeAlias = Callable[[str], Awaitable[Scores]]


class EventStream(Protocol):
    """A running call of a model. Only `cancel` stops its work."""

    def __aiter__(self) -> AsyncIterator[Event]: ...
    def cancel(self) -> None: ...


class ModelClient:
    """Calls the deployment of one model."""

    def __init__(self, handle: DeploymentHandle, levels: LogLevels) -> None:
        self._handle = handle.options(stream=True)  # built once: each `options` is costly
        self._levels = levels

    def call(self, job: GenerationJob) -> EventStream:
        """Starts a call on a replica, preferably one that holds the job's adapter."""
        if self._levels.levels:
            job = replace(job, log_levels=self._levels.levels)
        handle = self._handle if job.adapter is None else self._handle.options(multiplexed_model_id=job.adapter.id)
        return cast("EventStream", handle.generate.remote(job))


class ReplicaReports:
    """Sums of the counters that replicas of one model send with their events."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._setup: Mapping[str, str] = {}
        self._last_step: StepTiming | None = None

    def add(self, counts: Mapping[str, float], setup: Mapping[str, str]) -> None:
        self._counts.update(counts)
        self._setup = setup

    def add_step(self, batch: int, step_s: float) -> None:
        self._last_step = StepTiming(batch, step_s)

    async def flush(self, store: TaskStore, queue: str) -> None:
        """Stores the sums. Loses them if the store is out of reach: metrics, no accounts."""
        counts, self._counts = self._counts, Counter()
        last_step, self._last_step = self._last_step, None
        if counts or last_step:
            await store.report(queue, counts, self._setup, last_step)


class RewriterClient:
    """Calls the prompt rewriter for the tasks that the settings enable. A failed or slow call gives ""."""

    def __init__(self, handle: DeploymentHandle | None, tasks: Collection[RewriterTask], timeout_s: float) -> None:
        self._handle: Any = handle
        self._tasks = tasks if handle else ()
        self._timeout_s = timeout_s

    def is_enabled(self, task: RewriterTask) -> bool:
        return task in self._tasks

    async def rewrite(self, prompt: str, seed: int) -> str:
        return await self._call("rewrite", prompt, seed)

    async def rewrite_edit(self, prompt: str, seed: int) -> str:
        return await self._call("rewrite", prompt, seed, edit=True)

    async def choose_ratio(self, prompt: str, seed: int) -> str:
        """Returns a text that names a ratio."""
        return await self._call("ratio", prompt, seed)

    async def _call(self, method: str, prompt: str, seed: int, **options: bool) -> str:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await getattr(self._handle, method).remote(prompt, seed, **options)
        except Exception as problem:
            logger.warning("a task goes on without the rewriter, which failed: %s", type(problem).__name__)
            return ""


class ModerationClient:
    """Calls all classifiers, in this process and in the moderator's deployment. The highest score counts."""

    def __init__(self, spec: ModeratorSpec, moderator: DeploymentHandle | None) -> None:
        local_spec, remote_spec = spec.split()
        self._text_calls, self._object_calls = list[_Classify](), list[_Classify]()
        if local_spec.text or local_spec.images:
            local = LocalModerator(replace(local_spec, max_batch=_LOCAL_BATCH))
            self._text_calls += [local.moderate_text] if local_spec.text else []
            self._object_calls += [local.moderate_object] if local_spec.images else []
        if moderator is not None:
            self._text_calls += [moderator.moderate_text.remote] if remote_spec.text else []
            self._object_calls += [moderator.moderate_object.remote] if remote_spec.images else []

    async def moderate_text(self, text: str) -> Scores:
        return await _highest(self._text_calls, text)

    async def moderate_object(self, key: str) -> Scores:
        return await _highest(self._object_calls, key)


async def _highest(calls: Sequence[_Classify], subject: str) -> Scores:
    if len(calls) == 1:
        return await calls[0](subject)
    return highest(await asyncio.gather(*(call(subject) for call in calls)))
