"""Background loops of a replica, and their health.

A loop marks the times when it has nothing to do (`rest`, `idle`). A loop that has not been idle for too long hangs, or
fails at every pass. Then the replica is unhealthy, and Ray Serve replaces it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

HANGS_S: Final = 120.0
"""Seconds without rest after which a loop counts as hung."""
FAILS_S: Final = 30.0
"""Seconds for which a loop may fail at every pass. An unreachable Redis does not count: restarting won't help."""
_PAUSE_S: Final = 0.2
_MAX_PAUSE_S: Final = 5.0
_INSIST_S: Final = 0.05
"""Seconds until a loop that ignored its cancellation is cancelled again."""


@dataclass(eq=False, slots=True)
class _Progress:
    busy_since: float | None = None
    failing_since: float | None = None
    failures: int = 0


_current: ContextVar[_Progress | None] = ContextVar("loop", default=None)


@contextmanager
def idle() -> Iterator[None]:
    """Marks the calling loop as idle: it may wait here for any time without counting as hung."""
    progress = _current.get()
    if progress is not None:
        progress.busy_since = progress.failing_since = None
        progress.failures = 0
    try:
        yield
    finally:
        if progress is not None:
            progress.busy_since = time.monotonic()


async def rest(seconds: float) -> None:
    """Waits for the next pass of a loop."""
    with idle():
        await asyncio.sleep(seconds)


def is_cancelled() -> bool:
    """Tells a cancellation of this task from one of something that it awaited, which is a mere failure."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class BackgroundTasks:
    def __init__(self, loops: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        self._progress = {name: _Progress() for name in loops}
        self._tasks = [
            asyncio.create_task(_forever(name, loop, self._progress[name]), name=name) for name, loop in loops.items()
        ]

    def check(self) -> None:
        """Raises RuntimeError if a loop has ended, hangs, or fails at every pass."""
        now = time.monotonic()
        for task in self._tasks:
            name = task.get_name()
            progress = self._progress[name]
            if task.done():
                raise RuntimeError(f"the {name} loop has ended")
            if progress.failing_since is not None and now - progress.failing_since > FAILS_S:
                raise RuntimeError(f"the {name} loop has failed {progress.failures} times in a row")
            if progress.busy_since is not None and now - progress.busy_since > HANGS_S:
                raise RuntimeError(f"the {name} loop hangs")

    async def stop(self) -> None:
        running = set(self._tasks)
        while running:
            # Before Python 3.12 asyncio.wait_for, which the Redis client uses, may swallow a cancellation.
            for task in running:
                task.cancel()
            _, running = await asyncio.wait(running, timeout=_INSIST_S)


async def _forever(name: str, loop: Callable[[], Awaitable[None]], progress: _Progress) -> None:
    """Restarts a loop that fails: Redis comes back, and a bug in one loop must not stop the others."""
    _current.set(progress)
    while True:
        progress.busy_since = time.monotonic()
        try:
            await loop()
        except RedisError as problem:
            progress.failing_since, progress.failures = None, 0
            logger.warning("task store out of reach: %s", type(problem).__name__)
        except (Exception, asyncio.CancelledError):
            if is_cancelled():
                raise
            progress.failing_since = progress.failing_since or time.monotonic()
            progress.failures += 1
            logger.exception("the %s loop failed and starts again", name)
        progress.busy_since = None
        await asyncio.sleep(min(_PAUSE_S * 2 ** max(0, progress.failures - 1), _MAX_PAUSE_S))
