"""Reservations: inputs in the object store for tasks that are not submitted yet. Without their task they are swept."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, cast

from redis.asyncio import Redis

from serve_app.storage.scripts import RedisClock, Scripts, milliseconds
from serve_app.tasks.limits import Limits
from serve_app.tasks.rejections import rejection
from serve_app.tasks.scripts import CheckOutcome, source

RESERVATION_S: Final = 3600
"""Seconds that inputs may wait for their submission."""
STORING_S: Final = 300
"""Seconds that one process has to store an uploaded file before another may begin."""


class Reservations:
    def __init__(self, redis: Redis, prefix: str, limits: Limits, clock: RedisClock) -> None:
        """`redis` must decode responses."""
        self._redis = redis
        self._prefix = prefix
        self._limits = limits
        self._clock = clock
        self._scripts = Scripts(redis, prefix, source)

    async def reserve(self, task_id: str, project: str) -> float:
        """Notes that inputs of the task are about to be stored. Returns when they go, epoch seconds."""
        now, own = await self._clock.now(), f"{self._prefix}reserved:{project}"
        due = milliseconds(now + RESERVATION_S)
        pipe = self._redis.pipeline(transaction=True)
        pipe.zadd(f"{self._prefix}retention", {task_id: due})
        pipe.zremrangebyscore(own, "-inf", milliseconds(now))
        pipe.zadd(own, {task_id: due})
        pipe.pexpireat(own, due)
        await pipe.execute()
        return due / 1000

    async def reserve_upload(
        self, upload_id: str, project: str, organization: str, max_bytes: int, price: int
    ) -> float:
        """Reserves a file that a client is about to upload. Returns when it goes, epoch seconds.

        `price` is the least that a task costs, in milli-credits. Raises TooManyUploads, or InsufficientCredits or
        SpendingLimitReached where the project can't pay so much.
        """
        limits, due = self._limits, milliseconds(await self._clock.now() + RESERVATION_S)
        answer = await self._scripts.call(
            "reserve_upload",
            id=upload_id,
            project=project,
            organization=organization,
            bytes=max_bytes,
            due_ms=due,
            max_uploads=limits.max_uploads,
            max_bytes=limits.max_uploads_mb * 2**20,
            price=price,
        )
        if CheckOutcome(answer["outcome"]) is CheckOutcome.REJECTED:
            raise rejection(answer)
        return due / 1000

    async def begin_upload(self, upload_id: str) -> str | None:
        """Returns the project of an upload whose file may come now; None where one is coming or has come already.

        A process that dies while the file comes holds the upload up for `STORING_S`.
        """
        if not await self._redis.set(f"{self._prefix}storing:{upload_id}", 1, nx=True, ex=STORING_S):
            return None
        return await cast(Awaitable[str | None], self._redis.get(f"{self._prefix}upload:{upload_id}"))

    async def abort_upload(self, upload_id: str) -> None:
        """Lets the file come another time, after one that broke off."""
        await self._redis.delete(f"{self._prefix}storing:{upload_id}")

    async def end_upload(self, upload_id: str, project: str, size: int) -> None:
        """Notes that the file has come, and its bytes."""
        await self._scripts.call("end_upload", id=upload_id, project=project, bytes=size)

    async def is_reserved(self, task_id: str, project: str) -> bool:
        due = await self._redis.zscore(f"{self._prefix}reserved:{project}", task_id)
        return due is not None and due > milliseconds(await self._clock.now())
