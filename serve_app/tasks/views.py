"""Views of tasks: the body of polls and webhooks, waits and queue load."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, cast

from redis.asyncio import Redis

from deployments.contract.counts import Buckets, Histogram
from deployments.contract.job import media_type
from deployments.contract.objects import ObjectStore
from serve_app.inputs.links import LinkSigner
from serve_app.tasks.result import GenerationResult
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status, Task
from serve_app.tasks.windows import WindowReader

Vocabulary = Literal["full", "basic"]
_BASIC = {Status.REASONING, Status.GENERATING}
_PUBLIC = ("prompt", "seed", "start_time", "end_time", "duration")
"""Fields of a result that clients see beside links."""


@dataclass(frozen=True, slots=True)
class ResultSerializer:
    """Serializes tasks into the contract's result body."""

    objects: ObjectStore
    links: LinkSigner
    image_life_s: float
    """Seconds that a signed link to an image is valid."""
    video_life_s: float = 3600.0
    """Seconds that a signed link to a video or to a draft's latents is valid."""

    async def body(self, task: Task, base: str, vocabulary: Vocabulary = "full") -> dict[str, Any]:
        """Returns the body with freshly signed links on the origin `base`."""
        status = Status.PENDING if vocabulary == "basic" and task.status in _BASIC else task.status
        body: dict[str, Any] = {
            "id": task.id,
            "status": status.value,
            "result": None,
            "progress": task.progress,
            "details": task.details,
            "preview": None,
        }
        if task.status is Status.READY and task.result is not None:
            body["result"] = await self._result(task.result, base)
        if task.preview is not None and not task.status.terminal:
            link = await self._link(task.preview.key, base)
            body["preview"] = {"sample": link, "step": task.preview.step, "steps": task.preview.steps}
        if task.cost is not None:
            body["cost"] = task.cost / 1000
        return body

    async def thumbnail(self, task: Task, base: str) -> str | None:
        """Returns a link to a small image of the result, or to the preview of an unfinished task; None without one."""
        if task.status is Status.READY:
            key = task.result.thumbnail if task.result else None
        else:
            key = task.preview.key if task.preview and not task.status.terminal else None
        return None if key is None else await self._link(key, base)

    async def _result(self, result: GenerationResult, base: str) -> dict[str, Any]:
        view = {"sample": await self._link(result.key, base)}
        if result.draft is not None:
            view["draft_cache"] = await self._link(result.draft.key, base)
        return view | {name: getattr(result, name) for name in _PUBLIC}

    async def _link(self, key: str, base: str) -> str:
        is_image = media_type(key).startswith("image/")
        return await self.link(key, base, self.image_life_s if is_image else self.video_life_s)

    async def link(self, key: str, base: str, life_s: float, *, exact: bool = False) -> str:
        """Returns a link that opens the object for `life_s` seconds, or somewhat longer unless `exact`."""
        if self.objects.can_sign:
            return await self.objects.sign(key, timedelta(seconds=life_s))
        return base + self.links.sign(key, life_s, time.time(), exact=exact)


def encode_body(body: dict[str, Any]) -> bytes:
    """Returns the bytes of polling answers and webhooks alike."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def not_found(task_id: str) -> dict[str, Any]:
    empty = dict.fromkeys(("result", "progress", "details", "preview"))
    return {"id": task_id, "status": Status.NOT_FOUND.value, **empty}


BUCKETS: Final = Buckets(
    (100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000), per_unit=1000
)
"""Upper bounds in milliseconds, as in `timings.lua`."""

WAIT: Final = "wait"
"""Time from submission to the first start of work."""
WORK: Final = "work"
"""Time from the first start of work to the result, of tasks that became ready."""


async def timings(redis: Redis, prefix: str, queue: str) -> dict[str, Histogram]:
    """Returns the histograms WAIT and WORK of a queue."""
    raw = await cast(Awaitable[dict[str, str]], redis.hgetall(f"{prefix}timings:{queue}"))
    return {name: BUCKETS.read(name, raw) for name in (WAIT, WORK)}


@dataclass(frozen=True, slots=True)
class QueueLoad:
    queued: int
    quarantined: int
    running: int
    counts: Mapping[str, int]
    """Numbers of tasks by outcome, and of other events."""
    histograms: Mapping[str, Histogram]
    """Histograms since the store began, by their names in `timings.lua`."""
    run_s: float | None
    """Mean seconds of a run in the last hour, else the last day, else since the store began; None before the first."""

    @property
    def queued_s(self) -> float | None:
        """Seconds that the waiting tasks take one after the other; None without `run_s`."""
        return None if self.run_s is None else (self.queued + self.quarantined) * self.run_s

    @property
    def wait_s(self) -> float | None:
        """Seconds that a task submitted now waits, if as many run at a time as now; None without `run_s`."""
        return None if self.queued_s is None else self.queued_s / max(self.running, 1)


async def get_queue_load(tasks: TaskStore, windows: WindowReader, queue: str) -> QueueLoad:
    counts = await tasks.reads.counts(queue)
    queued, quarantined, running = (counts.pop(name) for name in ("queued", "quarantined", "leased"))
    histograms = await timings(tasks.redis, tasks.prefix, queue)
    run_s = (await windows.read(queue, "1h")).run_s
    if run_s is None:
        run_s = (await windows.read(queue, "24h")).run_s
    if run_s is None:
        run_s = histograms[WORK].mean
    return QueueLoad(queued, quarantined, running, counts, histograms, run_s)
