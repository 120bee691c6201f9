"""What can be read of tasks without changing them; `store.py` names the structures."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import cast

from redis.asyncio import Redis

from serve_app.redis_store.pages import page
from serve_app.tasks.task import Task, from_record


class TaskReader:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        """`redis` must decode responses."""
        self.redis = redis
        self.prefix = prefix

    async def get(self, task_id: str) -> Task | None:
        raw = await cast(Awaitable[dict[str, str]], self.redis.hgetall(self._key(f"task:{task_id}")))
        return from_record(raw) if raw else None

    async def list_tasks(
        self, project: str, *, limit: int, cursor: str | None = None, active: bool = False
    ) -> tuple[list[Task], str | None]:
        """The project's tasks, newest first, and the cursor of the next page. Raises ValueError for a bad cursor."""
        index = self._key(f"{'active' if active else 'tasks'}:{project}")
        ids, following = await page(self.redis, index, limit, cursor)
        return [task for task in await self._get_many(ids, index) if task], following

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

    async def _get_many(self, ids: Sequence[str], index: str) -> list[Task | None]:
        pipe = self.redis.pipeline(transaction=False)
        for task_id in ids:
            pipe.hgetall(self._key(f"task:{task_id}"))
        records = await pipe.execute() if ids else []
        gone = [task_id for task_id, raw in zip(ids, records, strict=True) if not raw]
        if gone:
            await cast(Awaitable[int], self.redis.zrem(index, *gone))
        return [from_record(raw) if raw else None for raw in records]
