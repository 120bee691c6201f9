"""A Redis server that takes a call and does not answer. It runs the call at once or later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from redis.exceptions import TimeoutError

from serve_app.storage.pipelining import PipelinedRedis

STALE_AFTER_S = 0.05
"""Replaces `SUBMIT_S`."""


_counts: ContextVar[bool] = ContextVar("counts", default=False)
"""True in the test's own calls; calls of the app's background loops do not count."""


class StalledRedis:
    """Answers `survives` calls. The next one runs without an answer, at once or in `resume`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._remaining: int | None = None
        self._at_once = False
        self._stalled: Callable[[], Awaitable[Any]] | None = None
        execute = PipelinedRedis.execute_command

        async def wrapper(redis: PipelinedRedis, *command: Any, **options: Any) -> Any:
            if self._remaining is None or not _counts.get():
                return await execute(redis, *command, **options)
            self._remaining -= 1
            if self._remaining >= 0:
                return await execute(redis, *command, **options)
            if self._remaining == -1:
                if self._at_once:
                    await execute(redis, *command, **options)
                else:
                    self._stalled = lambda: execute(redis, *command, **options)
            raise TimeoutError("no answer")

        monkeypatch.setattr(PipelinedRedis, "execute_command", wrapper)

    @contextmanager
    def stall_after(self, survives: int, at_once: bool) -> Iterator[None]:
        self._remaining, self._at_once, self._stalled = survives, at_once, None
        token = _counts.set(True)
        try:
            yield
        finally:
            _counts.reset(token)
            self._remaining = None

    async def resume(self, redis: Redis) -> None:
        """Runs the stalled call once the submission has expired."""
        if self._stalled is not None:
            due = await server_time(redis) + 2 * STALE_AFTER_S
            while await server_time(redis) < due:
                pass
            await self._stalled()


async def server_time(redis: Redis) -> float:
    seconds, micros = await cast(Awaitable[tuple[int, int]], redis.time())
    return int(seconds) + int(micros) / 1e6
