"""Reads of tasks; `store.py` names the structures."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from redis.asyncio import Redis

from serve_app.encryption import IN_CLEAR, AtRest, UnknownSealingKey
from serve_app.storage.pages import page
from serve_app.storage.scripts import RedisClock, Scripts
from serve_app.tasks.scripts import source
from serve_app.tasks.task import Status, Task, from_record

logger = logging.getLogger(__name__)

UNREADABLE: Final = "This task can't be read any more: the key that it was encrypted with is gone"
"""Error of a task whose payload or result can't be read, for its client."""
_SCAN_LIMIT: Final = 1000
"""Limit of the tasks that one page of a filtered list looks at."""
_SCAN_BATCH: Final = 200
"""Tasks that a filtered list looks at together."""
_READ_BATCH: Final = 10
"""Records that are opened before other coroutines run: what clients wrote may be long."""
_SEALED: Final = ("job", "result", "details", "webhook_url")


@dataclass(frozen=True, slots=True)
class Ages:
    """Ages of a queue's oldest entries in seconds, 0 where there is none."""

    waiting: float
    """Time since the submission of the task that has waited longest."""
    lease: float
    """Time since the end of the lease that is longest over: how far the reaper is behind."""
    deadline: float


@dataclass(frozen=True, slots=True)
class ServerMemory:
    """Bytes that the server uses, and may use; a limit of 0 is none."""

    used: int
    limit: int

    def is_fuller_than(self, share: float) -> bool:
        return self.limit > 0 and self.used > share * self.limit


class StepTiming(NamedTuple):
    """Jobs that took a step together, and its seconds."""

    batch: int
    step_s: float


class _Outline(NamedTuple):
    """The fields of a task that are stored in clear."""

    id: str
    created: str
    """Milliseconds since the epoch."""
    status: str
    endpoint: str

    @property
    def cursor(self) -> str:
        """Cursor of the tasks that follow in a list."""
        return f"{self.created}-{self.id}"

    def fits(self, statuses: Collection[str], endpoints: Collection[str]) -> bool:
        return (not statuses or self.status in statuses) and (not endpoints or self.endpoint in endpoints)


class TaskReads:
    def __init__(self, redis: Redis, prefix: str = "gen:", at_rest: AtRest = IN_CLEAR) -> None:
        """`redis` must decode responses."""
        self.redis = redis
        self.prefix = prefix
        self._at_rest = at_rest
        self.clock = RedisClock(redis)
        self._scripts = Scripts(redis, prefix, source)

    async def get(self, task_id: str) -> Task | None:
        """Returns None where there is no such task, or its owner deleted it."""
        raw = await cast(Awaitable[dict[str, str]], self.redis.hgetall(self._key(f"task:{task_id}")))
        return self._task(raw) if raw and "deleted" not in raw else None

    async def get_many(self, ids: Sequence[str]) -> list[Task | None]:
        """Returns the tasks, those that their owners deleted as well; None where there is none."""
        pipe = self.redis.pipeline(transaction=False)
        for task_id in ids:
            pipe.hgetall(self._key(f"task:{task_id}"))
        return [self._task(raw) if raw else None for raw in (await pipe.execute() if ids else [])]

    async def list_tasks(
        self,
        project: str,
        *,
        limit: int,
        cursor: str | None = None,
        active: bool = False,
        statuses: Collection[Status] = (),
        endpoints: Collection[str] = (),
        since: float | None = None,
        text: str = "",
    ) -> tuple[list[Task], str | None]:
        """Returns the project's tasks, newest first, and the cursor of the next page. Raises ValueError for a bad one.

        The tasks have one of the statuses and endpoints, if given, were submitted at or after `since`, epoch seconds,
        and have prompts that contain `text`, in any case. A page looks at a thousand tasks at most, so it may have
        fewer than `limit`, or none, and others follow.
        """
        index = self._key(f"{'active' if active else 'tasks'}:{project}")
        oldest = None if since is None else math.ceil(since * 1000)
        batch = _SCAN_BATCH if statuses or endpoints or text else limit
        outlines: list[_Outline] = []
        for _ in range(0, _SCAN_LIMIT, _SCAN_BATCH):
            ids, cursor = await page(self.redis, index, batch, cursor, oldest)
            fitting = [each for each in await self._outlines(index, ids) if each.fits(statuses, endpoints)]
            outlines += await self._containing(fitting, text.casefold()) if text else fitting
            if cursor is None or len(outlines) >= limit:
                break
        if len(outlines) > limit:
            del outlines[limit:]
            cursor = outlines[-1].cursor
        return [task async for task in self._read(outlines)], cursor

    async def _containing(self, outlines: Sequence[_Outline], text: str) -> list[_Outline]:
        ids = {task.id async for task in self._read(outlines) if text in (task.prompt or "").casefold()}
        return [each for each in outlines if each.id in ids]

    async def _read(self, outlines: Sequence[_Outline]) -> AsyncIterator[Task]:
        for start in range(0, len(outlines), _READ_BATCH):
            for task in await self.get_many([each.id for each in outlines[start : start + _READ_BATCH]]):
                if task:
                    yield task

    async def _outlines(self, index: str, ids: Sequence[str]) -> list[_Outline]:
        """Returns the outlines of the tasks, in their order. Tasks that are gone leave the index."""
        pipe = self.redis.pipeline(transaction=False)
        for task_id in ids:
            pipe.hmget(self._key(f"task:{task_id}"), "created", "status", "endpoint")
        rows: list[list[str | None]] = await pipe.execute() if ids else []
        if gone := [task_id for task_id, row in zip(ids, rows, strict=True) if None in row]:
            await cast(Awaitable[int], self.redis.zrem(index, *gone))
        return [
            _Outline(task_id, created, status, endpoint)
            for task_id, (created, status, endpoint) in zip(ids, rows, strict=True)
            if created is not None and status is not None and endpoint is not None
        ]

    async def find_needed(self, ids: Sequence[str]) -> set[str]:
        """Returns those of the tasks that others, which have not ended, are made of."""
        pipe = self.redis.pipeline(transaction=False)
        for task_id in ids:
            pipe.exists(self._key(f"needed:{task_id}"))
        answers = await pipe.execute() if ids else []
        return {task_id for task_id, is_needed in zip(ids, answers, strict=True) if is_needed}

    async def projects(self) -> list[str]:
        """Returns the projects that have tasks which are still kept, in no order."""
        start = self._key("tasks:")
        return [key.removeprefix(start) async for key in self.redis.scan_iter(f"{start}*", count=1000)]

    # Queues

    async def counts(self, queue: str) -> dict[str, int]:
        """Returns the numbers of tasks `queued`, `quarantined` and `leased`, and every counter of `stats`."""
        pipe = self.redis.pipeline(transaction=False)
        for name in ("queued", "quarantined", "leased"):
            pipe.zcard(self._key(f"{name}:{queue}"))
        pipe.hgetall(self._key(f"stats:{queue}"))
        queued, quarantined, leased, stats = await pipe.execute()
        return {"queued": queued, "quarantined": quarantined, "leased": leased, **{k: int(v) for k, v in stats.items()}}

    async def ages(self, queue: str) -> Ages:
        answer = await self._scripts.call("ages", queue)
        return Ages(answer["waiting_ms"] / 1000, answer["lease_ms"] / 1000, answer["deadline_ms"] / 1000)

    async def non_empty_queues(self, *queues: str) -> list[str]:
        """Returns those of the queues in which tasks wait."""
        answer = await self._scripts.call("non_empty_queues", queues=queues)
        return list(answer["queues"])

    async def last_step(self, queue: str) -> StepTiming | None:
        """Returns the last step of the queue's replicas; None where none was taken within a minute."""
        raw = await cast(Awaitable[dict[str, str]], self.redis.hgetall(self._key(f"pace:{queue}")))
        return StepTiming(int(raw["batch"]), float(raw["step_s"])) if raw else None

    async def work(self, queue: str) -> dict[str, float]:
        """Returns the sums that the queue's replicas counted, by the names of `deployments/contract/counts.py`."""
        raw = await cast(Awaitable[dict[str, str]], self.redis.hgetall(self._key(f"work:{queue}")))
        return {name: float(count) for name, count in raw.items()}

    async def recent_counts(self, queue: str, period: str, numbers: Sequence[int]) -> list[dict[str, float]]:
        """Returns the counts of `windows.lua` in each of these periods."""
        pipe = self.redis.pipeline(transaction=False)
        for number in numbers:
            pipe.hgetall(self._key(f"recent:{queue}:{period}:{number}"))
        rows = await pipe.execute() if numbers else []
        return [{name: float(count) for name, count in row.items()} for row in rows]

    async def device_seconds(self, queue: str) -> dict[str, float]:
        """Returns the device time of the queue's ended tasks, by endpoint."""
        raw = await cast(Awaitable[dict[str, str]], self.redis.hgetall(self._key(f"device:{queue}")))
        return {endpoint: int(us) / 1e6 for endpoint, us in raw.items()}

    async def device_seconds_by_project(self, limit: int) -> dict[str, float]:
        """Returns the device time of the `limit` projects whose tasks took most, of all queues."""
        ranking = (
            await self.redis.zrange(self._key("device"), 0, limit - 1, desc=True, withscores=True) if limit else []
        )
        return {project: us / 1e6 for project, us in cast(list[tuple[str, float]], ranking)}

    async def setup(self, queue: str) -> dict[str, str]:
        """Returns how the replica that reported last runs its model: device, precision, attention, ..."""
        return await cast(Awaitable[dict[str, str]], self.redis.hgetall(self._key(f"setup:{queue}")))

    async def failures(self, queue: str) -> list[Task]:
        """Returns the last tasks that ended as `Error`, newest first, without those that were cancelled."""
        ids = await cast(Awaitable[list[str]], self.redis.lrange(self._key(f"failed:{queue}"), 0, -1))
        return [task for task in await self.get_many(ids) if task is not None]

    # The server

    async def ping(self) -> None:
        """Raises redis.RedisError when the store is out of reach."""
        await cast(Awaitable[bool], self.redis.ping())

    async def now(self) -> float:
        """Returns epoch seconds, by the clock of the store."""
        return await self.clock.now()

    async def memory(self) -> ServerMemory:
        info = await cast(Awaitable[dict[str, Any]], self.redis.info("memory"))
        return ServerMemory(int(info["used_memory"]), int(info["maxmemory"]))

    async def has_dispatcher(self) -> bool:
        """Returns whether a dispatcher sent a heartbeat within a few seconds."""
        return bool(await cast(Awaitable[int], self.redis.exists(self._key("dispatcher"))))

    async def sweep_lag(self) -> float:
        """Returns the seconds for which the task that is forgotten next has been due; 0 where none is."""
        first = await self.redis.zrange(self._key("retention"), 0, 0, withscores=True)
        due = cast(list[tuple[str, float]], first)
        return max(0.0, await self.clock.now() - due[0][1] / 1000) if due else 0.0

    def unseal(self, sealed: str, task_id: str) -> str:
        """Returns the sealed text; empty where the key is gone."""
        try:
            return self._at_rest.open(sealed)
        except UnknownSealingKey:
            logger.error("task %s was sealed with a key that is no longer among sealing.keys", task_id)
            return ""

    def _key(self, name: str) -> str:
        return self.prefix + name

    def _task(self, raw: Mapping[str, str]) -> Task:
        """Returns the task of a record; its result is an error where that can't be read."""
        fields, unreadable = dict(raw), set[str]()
        for name in _SEALED:
            if name in raw:
                text = self.unseal(raw[name], raw["id"])
                fields[name] = text
                if not text:
                    unreadable.add(name)
        if "result" in unreadable or "details" in unreadable:
            fields.pop("result", None)
            fields |= {"status": Status.ERROR, "details": json.dumps({"error": UNREADABLE})}
        return from_record(fields)
