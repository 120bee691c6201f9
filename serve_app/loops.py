"""Loops that a deployment's replica runs for as long as it lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

_PAUSE_S = 0.2
_INSIST_S = 0.05
"""Between two cancellations of a loop that goes on."""


class Loops:
    def __init__(self, loops: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        self._tasks = [asyncio.create_task(_forever(name, loop), name=name) for name, loop in loops.items()]

    def check(self) -> None:
        """Raises RuntimeError when one has ended."""
        for task in self._tasks:
            if task.done():
                raise RuntimeError(f"the {task.get_name()} loop has ended")

    async def stop(self) -> None:
        running = set(self._tasks)
        while running:
            # Before Python 3.12 asyncio.wait_for, which the Redis client uses, may swallow a cancellation.
            for task in running:
                task.cancel()
            _, running = await asyncio.wait(running, timeout=_INSIST_S)


async def _forever(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """Runs a loop again whenever it fails: Redis comes back, and bugs must not stop the others' work."""
    while True:
        try:
            await loop()
        except asyncio.CancelledError:
            raise
        except RedisError as problem:
            logger.warning("task store out of reach: %s", type(problem).__name__)
        except Exception:
            logger.exception("the %s loop failed and starts again", name)
        await asyncio.sleep(_PAUSE_S)
