"""What a task came to, and its file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from os import PathLike
from pathlib import Path
from typing import Any

from gen_serve_client.calls import link
from gen_serve_client.types import TaskResult


class BaseResult:
    """A task that is `Ready`."""

    def __init__(self, task: TaskResult) -> None:
        self.task = task
        """What polling answered."""

    @property
    def id(self) -> str:
        return self.task["id"]

    @property
    def url(self) -> str:
        """Link to the file, valid for ten minutes at least, for everybody who has it."""
        return link(self.task)

    @property
    def facts(self) -> dict[str, Any]:
        """`sample`, and as far as known `prompt`, `seed`, `start_time`, `end_time`, `duration`, `draft_cache`."""
        return self.task.get("result") or {}

    @property
    def cost(self) -> float | None:
        """Credits."""
        return self.task.get("cost")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What could not be done of what was asked for."""
        return tuple((self.task.get("details") or {}).get("warnings") or ())


class Result(BaseResult):
    """What `Client` made."""

    def __init__(self, task: TaskResult, content: Callable[[TaskResult], bytes]) -> None:
        super().__init__(task)
        self._content = content

    def content(self) -> bytes:
        """The file, fetched now. Raises OutOfReach, and Refused where it is no longer kept."""
        return self._content(self.task)

    def save(self, path: str | PathLike[str]) -> Path:
        """Fetches the file and writes it. Raises as `content` does, and OSError."""
        target = Path(path)
        target.write_bytes(self.content())
        return target


class AsyncResult(BaseResult):
    """What `AsyncClient` made."""

    def __init__(self, task: TaskResult, content: Callable[[TaskResult], Awaitable[bytes]]) -> None:
        super().__init__(task)
        self._content = content

    async def content(self) -> bytes:
        """As `Result.content`."""
        return await self._content(self.task)

    async def save(self, path: str | PathLike[str]) -> Path:
        """As `Result.save`."""
        target = Path(path)
        await asyncio.to_thread(target.write_bytes, await self.content())
        return target
