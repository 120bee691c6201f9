"""Crashes between two calls to Redis or the object store.

A crash is an exception that no code catches. It comes before the call, or after it, when the answer is lost.
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
    """The process's end: no `except Exception` catches it."""


class CrashInjector:
    """Lets `survives` calls happen, then raises `Killed` before the next one or right after it."""

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
