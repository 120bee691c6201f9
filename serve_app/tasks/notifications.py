"""Notifications of tasks that ended or changed: one subscription per process for all clients that wait."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from redis.asyncio import Redis

from serve_app.background import BackgroundTasks, idle

_WATCH_S: Final = 60
"""Seconds for which the store sends the changes of a watched task."""
_MAX_PER_TASK: Final = 32
"""Requests that wait for one task in this process."""


class TaskNotifications:
    """Subscribes to the ends of all tasks, and to changes of those that are watched.

    Messages are lost while there is no subscription: after the next one all events are set, so that waiters read their
    task again.
    """

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._id = uuid.uuid4().hex
        self._done, self._changed = f"{prefix}done", f"{prefix}changed:{self._id}"
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._watching: set[asyncio.Event] = set()
        self._listener: BackgroundTasks | None = None

    @contextlib.contextmanager
    def expect(self, task_id: str, *, changes: bool = False) -> Iterator[asyncio.Event]:
        """Yields an event that is set when the task ends, with `changes` when it changes, or when messages may be lost.

        Enter first, then read the task, then wait.
        """
        if self._listener is None:
            self._listener = BackgroundTasks({"task notifications": self._listen})
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
        """Asks the store to send changes of the task to this process for a minute."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.sadd(f"{self._prefix}watch:{task_id}", self._id)
        pipe.expire(f"{self._prefix}watch:{task_id}", _WATCH_S)
        await pipe.execute()

    def check(self) -> None:
        """Raises RuntimeError if the subscription has failed for long."""
        if self._listener is not None:
            self._listener.check()

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.stop()

    async def _listen(self) -> None:
        async with self._redis.pubsub() as pubsub:
            await pubsub.subscribe(self._changed, self._done)
            messages = pubsub.listen()
            while True:
                with idle():
                    message = await anext(messages)
                channel, events = message["channel"], self._waiting.get(message["data"], set())
                if message["type"] == "subscribe":  # also after a reconnection
                    events = set().union(*self._waiting.values())
                for event in events if channel == self._done else events & self._watching:
                    event.set()


class WatcherLimit:
    """Limits the polls and event streams that wait, some 90 KiB each, to three quarters of a replica's requests."""

    def __init__(self, max_ongoing_requests: int) -> None:
        self._limit = max(1, max_ongoing_requests * 3 // 4)
        self._total = 0
        self._by_task: Counter[str] = Counter()

    @contextlib.contextmanager
    def acquire(self, task_id: str) -> Iterator[bool]:
        """Yields whether the request may wait; if not, answer it at once."""
        if self._by_task[task_id] >= _MAX_PER_TASK or self._total >= self._limit:
            yield False
            return
        self._total += 1
        self._by_task[task_id] += 1
        try:
            yield True
        finally:
            self._total -= 1
            self._by_task[task_id] -= 1
            if not self._by_task[task_id]:
                del self._by_task[task_id]
