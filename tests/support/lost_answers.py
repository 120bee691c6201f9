"""A client whose library repeats calls, as it does when their answer was lost on the way."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis


class LosingAnswers:
    """Every command of `redis` that matches reaches the server twice; the caller sees the second answer."""

    def __init__(self, redis: Redis) -> None:
        self._execute = redis.execute_command
        self.lost_count = 0
        redis.execute_command = self._twice

    async def _twice(self, *command: Any, **options: Any) -> Any:
        if command[0] == "EVALSHA":
            self.lost_count += 1
            await self._execute(*command, **options)
        return await self._execute(*command, **options)
