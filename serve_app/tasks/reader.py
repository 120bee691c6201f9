"""What can be read of tasks without changing them; `store.py` names the structures."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, cast

from redis.asyncio import Redis

from serve_app.redis_store.pages import page
from serve_app.sealing.at_rest import IN_CLEAR, AtRest
from serve_app.sealing.sealer import Unreadable
from serve_app.tasks.task import Status, Task, from_record

logger = logging.getLogger(__name__)

UNREADABLE: Final = "This task can't be read any more: the key that it was encrypted with is gone"
"""What its client is told."""
_READ: Final = ("job", "result", "details", "webhook_url")
"""Of what is sealed."""


class TaskReader:
    def __init__(self, redis: Redis, prefix: str = "gen:", at_rest: AtRest = IN_CLEAR) -> None:
        """`redis` must decode responses."""
        self.redis = redis
        self.prefix = prefix
        self._at_rest = at_rest

    async def get(self, task_id: str) -> Task | None:
        raw = await cast(Awaitable[dict[str, str]], self.redis.hgetall(self._key(f"task:{task_id}")))
        return self._task(raw) if raw else None

    async def get_many(self, ids: Sequence[str]) -> list[Task | None]:
        pipe = self.redis.pipeline(transaction=False)
        for task_id in ids:
            pipe.hgetall(self._key(f"task:{task_id}"))
        return [self._task(raw) if raw else None for raw in (await pipe.execute() if ids else [])]

    async def list_tasks(
        self, project: str, *, limit: int, cursor: str | None = None, active: bool = False
    ) -> tuple[list[Task], str | None]:
        """The project's tasks, newest first, and the cursor of the next page. Raises ValueError for a bad cursor."""
        index = self._key(f"{'active' if active else 'tasks'}:{project}")
        ids, following = await page(self.redis, index, limit, cursor)
        tasks = await self.get_many(ids)
        gone = [task_id for task_id, task in zip(ids, tasks, strict=True) if task is None]
        if gone:
            await cast(Awaitable[int], self.redis.zrem(index, *gone))
        return [task for task in tasks if task], following

    async def counts(self, lane: str) -> dict[str, int]:
        """How many tasks are `queued`, `suspects` and `leased`, and every counter of `stats`."""
        pipe = self.redis.pipeline(transaction=False)
        for name in ("queued", "suspects", "leased"):
            pipe.zcard(self._key(f"{name}:{lane}"))
        pipe.hgetall(self._key(f"stats:{lane}"))
        queued, suspects, leased, stats = await pipe.execute()
        return {"queued": queued, "suspects": suspects, "leased": leased, **{k: int(v) for k, v in stats.items()}}

    async def ping(self) -> None:
        """Raises redis.RedisError when the store is out of reach."""
        await cast(Awaitable[bool], self.redis.ping())

    def channel(self, name: str) -> str:
        """The pub/sub channel `done`, `stop` or `wake:{lane}`."""
        return self._key(name)

    def _key(self, name: str) -> str:
        return self.prefix + name

    def _task(self, raw: Mapping[str, str]) -> Task:
        """The task of a record. What came of it is an error where that can't be read."""
        opened, lost = dict(raw), set[str]()
        for name in _READ:
            if name in raw:
                text = self._opened(raw[name], raw["id"])
                opened[name] = text
                if not text:
                    lost.add(name)
        if "result" in lost or "details" in lost:
            opened.pop("result", None)
            opened |= {"status": Status.ERROR, "details": json.dumps({"error": UNREADABLE})}
        return from_record(opened)

    def _opened(self, stored: str, task_id: str) -> str:
        """What was sealed; empty where the key is gone."""
        try:
            return self._at_rest.open(stored)
        except Unreadable:
            logger.error("task %s was sealed with a key that is no longer among sealing.keys", task_id)
            return ""
