"""Atomic steps: Lua scripts from files, each with what it shares with others in front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis
from redis.commands.core import AsyncScript

PRELUDE: Final = Path(__file__).with_name("prelude.lua")
"""Names of keys, the time and the rate limit; a script begins with it."""


def joined(*files: Path) -> str:
    """The texts of these files, one after the other."""
    return "".join(file.read_text() for file in files)


class Scripts:
    """The scripts of one room, each sent to the server once and then called by its digest."""

    def __init__(self, redis: Redis, prefix: str, source: Callable[[str], str]) -> None:
        """`source` gives a script's text by its name; it finds `prefix` in ARGV[1]."""
        self._redis = redis
        self._prefix = prefix
        self._source = source
        self._registered: dict[str, AsyncScript] = {}

    async def run(self, name: str, args: Sequence[Any]) -> Any:
        """The reply to the script `name`, whose ARGV is the prefix and then `args`."""
        script = self._registered.get(name)
        if script is None:
            script = self._registered[name] = self._redis.register_script(self._source(name))
        return await script(keys=[], args=[self._prefix, *args])
