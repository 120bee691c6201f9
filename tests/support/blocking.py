"""An asyncio client called as if it was a plain one, so that one test speaks of both."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any


class Blocking:
    """Waits for whatever the methods of `target` promise."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self._target = target
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            made = value(*args, **options)
            return self._waited(made) if inspect.iscoroutine(made) else made

        return call

    def _waited(self, promised: Any) -> Any:
        result = self._runner.run(promised)
        awaits = any(inspect.iscoroutinefunction(getattr(type(result), name)) for name in dir(type(result)))
        return Blocking(result, self._runner) if awaits else result
