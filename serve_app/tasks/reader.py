"""Reads of tasks; `store.py` names the structures."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, cast

from redis.asyncio import Redis

from serve_app.encryption import IN_CLEAR, AtRest, Unreadable
from serve_app.storage.pages import page
from serve_app.tasks.task import Status, Task, from_record

logger = logging.getLogger(__name__)

UNREADABLE: Final = "This task can't be read any more: the key that it was encrypted with is gone"
"""What its client is told."""
_SCAN_LIMIT: Final = 1000
"""Tasks that one page of a filtered list looks at, at most."""
_SCAN_BATCH: Final = 200
"""Of them at a time."""
_READ_BATCH: Final = 10
"""Records that are opened before others have their turn: what clients wrote may be long."""
_READ: Final = ("job", "result", "details", "webhook_url")
"""Of what is sealed."""


class _Outline(NamedTuple):
    """What is read of a task without opening anything."""

    id: str
    created: str
    """In milliseconds."""
    status: str
    endpoint: str

    @property
    def cursor(self) -> str:
        """Of what follows in a list."""
        return f"{self.created}-{self.id}"

    def fits(self, statuses: Collection[str], endpoints: Collection[str]) -> bool:
        return (not statuses or self.status in statuses) and (not endpoints or self.endpoint in endpoints)


class TaskReader:
    def __init__(self, redis: Redis, prefix: str = "gen:", at_rest: AtRest = IN_CLEAR) -> None:
        """`redis` must decode responses."""
        self.redis = redis
        self.prefix = prefix
        self._at_rest = at_rest

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
        """The project's tasks, newest first, and the cursor of the next page. Raises ValueError for a bad cursor.

        Those of these statuses and endpoints, if given, that were submitted at or after `since`, epoch seconds, and
        whose prompt contains `text`, in any case. A page of them looks at a thousand tasks at most, so it may have
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
        """What filters ask of the tasks, in their order. Those that are gone leave the index."""
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

    async def projects(self) -> list[str]:
        """Those that have tasks which are still kept, in no order."""
        start = self._key("tasks:")
        return [key.removeprefix(start) async for key in self.redis.scan_iter(f"{start}*", count=1000)]

    async def counts(self, queue: str) -> dict[str, int]:
        """How many tasks are `queued`, `quarantined` and `leased`, and every counter of `stats`."""
        pipe = self.redis.pipeline(transaction=False)
        for name in ("queued", "quarantined", "leased"):
            pipe.zcard(self._key(f"{name}:{queue}"))
        pipe.hgetall(self._key(f"stats:{queue}"))
        queued, quarantined, leased, stats = await pipe.execute()
        return {"queued": queued, "quarantined": quarantined, "leased": leased, **{k: int(v) for k, v in stats.items()}}

    async def last_step(self, queue: str) -> tuple[int, float] | None:
        """How many took the last step together, and its seconds; None where none was taken within a minute."""
        raw = await cast(Awaitable[dict[str, str]], self.redis.hgetall(self._key(f"pace:{queue}")))
        return (int(raw["batch"]), float(raw["step_s"])) if raw else None

    async def work(self, queue: str) -> dict[str, float]:
        """What the queue's replicas counted of their work, by the names of `deployments/contract/counts.py`."""
        raw = await cast(Awaitable[dict[str, str]], self.redis.hgetall(self._key(f"work:{queue}")))
        return {name: float(count) for name, count in raw.items()}

    async def recent_counts(self, queue: str, period: str, numbers: Sequence[int]) -> list[dict[str, float]]:
        """What `windows.lua` counted in each of these periods."""
        pipe = self.redis.pipeline(transaction=False)
        for number in numbers:
            pipe.hgetall(self._key(f"recent:{queue}:{period}:{number}"))
        rows = await pipe.execute() if numbers else []
        return [{name: float(count) for name, count in row.items()} for row in rows]

    async def device_seconds(self, queue: str) -> dict[str, float]:
        """Of a device, by endpoint, of the queue's tasks that have ended."""
        raw = await cast(Awaitable[dict[str, str]], self.redis.hgetall(self._key(f"device:{queue}")))
        return {endpoint: int(us) / 1e6 for endpoint, us in raw.items()}

    async def device_seconds_by_project(self, most: int) -> dict[str, float]:
        """Of all queues; those `most` projects whose tasks took most."""
        ranking = await self.redis.zrange(self._key("device"), 0, most - 1, desc=True, withscores=True) if most else []
        return {project: us / 1e6 for project, us in cast(list[tuple[str, float]], ranking)}

    async def setup(self, queue: str) -> dict[str, str]:
        """How the replica that reported last runs its model."""
        return await cast(Awaitable[dict[str, str]], self.redis.hgetall(self._key(f"setup:{queue}")))

    async def failures(self, queue: str) -> list[Task]:
        """The last that ended as `Error`, newest first; those that were cancelled or are no longer kept left out."""
        ids = await cast(Awaitable[list[str]], self.redis.lrange(self._key(f"failed:{queue}"), 0, -1))
        return [task for task in await self.get_many(ids) if task is not None]

    async def ping(self) -> None:
        """Raises redis.RedisError when the store is out of reach."""
        await cast(Awaitable[bool], self.redis.ping())

    async def has_dispatcher(self) -> bool:
        """Whether one said so within a few seconds."""
        return bool(await cast(Awaitable[int], self.redis.exists(self._key("dispatcher"))))

    def channel(self, name: str) -> str:
        """The pub/sub channel `done`, `stop` or `wake:{dispatcher}`."""
        return self._key(name)

    def _key(self, name: str) -> str:
        return self.prefix + name

    def _task(self, raw: Mapping[str, str]) -> Task:
        """The task of a record. What came of it is an error where that can't be read."""
        fields, unreadable = dict(raw), set[str]()
        for name in _READ:
            if name in raw:
                text = self._unseal(raw[name], raw["id"])
                fields[name] = text
                if not text:
                    unreadable.add(name)
        if "result" in unreadable or "details" in unreadable:
            fields.pop("result", None)
            fields |= {"status": Status.ERROR, "details": json.dumps({"error": UNREADABLE})}
        return from_record(fields)

    def _unseal(self, sealed: str, task_id: str) -> str:
        """What was sealed; empty where the key is gone."""
        try:
            return self._at_rest.open(sealed)
        except Unreadable:
            logger.error("task %s was sealed with a key that is no longer among sealing.keys", task_id)
            return ""
