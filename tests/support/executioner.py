"""A process that dies between two steps.

A step is a call to Redis or to the object store. Dying is an exception that nothing catches, before the call or after
it, when its answer is lost: no cleanup runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from deployments.contract.objects import ObjectStore


class Killed(BaseException):
    """Nothing runs after it."""


class Executioner:
    """Lets `survives` steps happen, then kills before the next one, or right after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left: int | None = None
        self._after = False
        monkeypatch.setattr(Redis, "execute_command", self._wrapped(Redis.execute_command))
        monkeypatch.setattr(Pipeline, "execute", self._wrapped(Pipeline.execute))
        for name in ("put", "delete", "delete_prefix", "delete_prefixes"):
            monkeypatch.setattr(ObjectStore, name, self._wrapped(getattr(ObjectStore, name)))

    @contextmanager
    def awaits(self, survives: int, after: bool) -> Iterator[None]:
        self._left, self._after = survives, after
        try:
            yield
        finally:
            self._left = None

    def _wrapped(self, step: Callable[..., Any]) -> Callable[..., Any]:
        async def stepped(*args: Any, **options: Any) -> Any:
            if self._left is None:
                return await step(*args, **options)
            if self._left == 0 and not self._after:
                raise Killed
            outcome = await step(*args, **options)
            if self._left == 0:
                raise Killed
            self._left -= 1
            return outcome

        return stepped
