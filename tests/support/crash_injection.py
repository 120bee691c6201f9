"""A process that dies between two steps.

A step is a call to Redis or to the object store. Dying is an exception that nothing catches, before the call or after
it, when its answer is lost: no cleanup runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis.asyncio.client import Pipeline

from deployments.contract.objects import ObjectStore
from serve_app.storage.pipelining import PipelinedRedis


class Killed(BaseException):
    """Nothing runs after it."""


class CrashInjector:
    """Lets `survives` steps happen, then kills before the next one, or right after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._remaining: int | None = None
        self._after = False
        monkeypatch.setattr(PipelinedRedis, "execute_command", self._wrap(PipelinedRedis.execute_command))
        monkeypatch.setattr(Pipeline, "execute", self._wrap(Pipeline.execute))
        for name in ("put", "delete", "delete_prefix", "delete_prefixes"):
            monkeypatch.setattr(ObjectStore, name, self._wrap(getattr(ObjectStore, name)))

    @contextmanager
    def crash_after(self, survives: int, after: bool) -> Iterator[None]:
        self._remaining, self._after = survives, after
        try:
            yield
        finally:
            self._remaining = None

    def _wrap(self, step: Callable[..., Any]) -> Callable[..., Any]:
        async def wrapper(*args: Any, **options: Any) -> Any:
            if self._remaining is None:
                return await step(*args, **options)
            if self._remaining == 0 and not self._after:
                raise Killed
            outcome = await step(*args, **options)
            if self._remaining == 0:
                raise Killed
            self._remaining -= 1
            return outcome

        return wrapper
