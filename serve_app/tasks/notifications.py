"""Notifications of tasks that ended or got on: one subscription per process, however many clients wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections import defaultdict
from collections.abc import Iterator

from redis.asyncio import Redis
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

_WATCH_S = 60


class Completions:
    """Hears of all ended tasks, and of what else becomes of those that are watched.

    What happens while it has no subscription is lost: once it has one again, whoever waits is to look.
    """

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._id = uuid.uuid4().hex
        self._done, self._changed = f"{prefix}done", f"{prefix}changed:{self._id}"
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._watching: set[asyncio.Event] = set()
        self._listener: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def expect(self, task_id: str, *, changes: bool = False) -> Iterator[asyncio.Event]:
        """An event that is set when the task ends, or with `changes` gets on, and where that may have been missed.

        Enter first, then look at the task, then wait.
        """
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())
        event = asyncio.Event()
        self._waiting[task_id].add(event)
        if changes:
            self._watching.add(event)
        try:
            yield event
        finally:
            self._watching.discard(event)
            self._waiting[task_id].discard(event)
            if not self._waiting[task_id]:
                del self._waiting[task_id]

    async def watch(self, task_id: str) -> None:
        """Has the store tell this process of the task's changes for a minute."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.sadd(f"{self._prefix}watch:{task_id}", self._id)
        pipe.expire(f"{self._prefix}watch:{task_id}", _WATCH_S)
        await pipe.execute()

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener

    async def _listen(self) -> None:
        while True:
            try:
                async with self._redis.pubsub() as pubsub:
                    await pubsub.subscribe(self._changed, self._done)
                    async for message in pubsub.listen():
                        channel, events = message["channel"], self._waiting.get(message["data"], set())
                        if message["type"] == "subscribe":  # at first, or again
                            events = set().union(*self._waiting.values())
                        for event in events if channel == self._done else events & self._watching:
                            event.set()
            except RedisError as problem:
                logger.warning("lost the completion channel, will listen again: %s", type(problem).__name__)
                await asyncio.sleep(0.5)
