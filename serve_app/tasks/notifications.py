"""Notifications of ended tasks: one subscription per process, however many clients wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Iterator

from redis.asyncio import Redis
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)


class Completions:
    """Hears of ended tasks on the `done` channel. The channel may lose messages: whoever waits must also look."""

    def __init__(self, redis: Redis, channel: str) -> None:
        self._redis = redis
        self._channel = channel
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._listener: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def expect(self, task_id: str) -> Iterator[asyncio.Event]:
        """An event that is set when the task ends. Enter first, then look at the task, then wait."""
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())
        event = asyncio.Event()
        self._waiting[task_id].add(event)
        try:
            yield event
        finally:
            self._waiting[task_id].discard(event)
            if not self._waiting[task_id]:
                del self._waiting[task_id]

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener

    async def _listen(self) -> None:
        while True:
            try:
                async with self._redis.pubsub() as pubsub:
                    await pubsub.subscribe(self._channel)
                    async for message in pubsub.listen():
                        if message["type"] == "message":
                            for event in self._waiting.get(message["data"], ()):
                                event.set()
            except RedisError as problem:
                logger.warning("lost the completion channel, will listen again: %s", type(problem).__name__)
                await asyncio.sleep(0.5)
