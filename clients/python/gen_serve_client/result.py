"""Results of tasks, with their files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from os import PathLike
from pathlib import Path
from typing import Any

from gen_serve_client.calls import link
from gen_serve_client.types import TaskResult


class BaseResult:
    """Result of a task that is `Ready`."""

    def __init__(self, task: TaskResult) -> None:
        self.task = task
        """Task as the last poll returned it."""

    @property
    def id(self) -> str:
        return self.task["id"]

    @property
    def url(self) -> str:
        """Link to the file, valid for at least ten minutes, without a key."""
        return link(self.task)

    @property
    def urls(self) -> tuple[str, ...]:
        """Links to all files: those of workflows may have several."""
        return tuple(self.facts.get("samples") or (self.url,))

    @property
    def facts(self) -> dict[str, Any]:
        """`sample`; if known `prompt`, `seed`, `start_time`, `end_time`, `duration`, `draft_cache` and `samples`."""
        return self.task.get("result") or {}

    @property
    def cost(self) -> float | None:
        """Price in credits."""
        return self.task.get("cost")

    @property
    def warnings(self) -> tuple[str, ...]:
        """Parts of the request that could not be done."""
        return tuple((self.task.get("details") or {}).get("warnings") or ())


class Result(BaseResult):
    """Result of a `Client`."""

    def __init__(self, task: TaskResult, content: Callable[[TaskResult], bytes]) -> None:
        super().__init__(task)
        self._content = content

    def content(self) -> bytes:
        """Downloads the file. Raises OutOfReach, or Refused if it is no longer kept."""
        return self._content(self.task)

    def save(self, path: str | PathLike[str]) -> Path:
        """Downloads the file to a path. Raises OSError and the exceptions of `content`."""
        target = Path(path)
        target.write_bytes(self.content())
        return target


class AsyncResult(BaseResult):
    """Result of an `AsyncClient`."""

    def __init__(self, task: TaskResult, content: Callable[[TaskResult], Awaitable[bytes]]) -> None:
        super().__init__(task)
        self._content = content

    async def content(self) -> bytes:
        """See `Result.content`."""
        return await self._content(self.task)

    async def save(self, path: str | PathLike[str]) -> Path:
        """See `Result.save`."""
        target = Path(path)
        await asyncio.to_thread(target.write_bytes, await self.content())
        return target
