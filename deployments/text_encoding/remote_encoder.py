"""A text encoder of another process, as a model's threads see it."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from ray.serve.handle import DeploymentHandle

from deployments.engine.backend import TextEncoderUnavailable

_ANSWER_S: Final = 60.0
"""For one prompt, also when others wait before it."""
_START_S: Final = 1800.0
"""Until it is loaded: it may have to fetch the checkpoint."""

Answer = TypeVar("Answer")


class RemoteEncoder:
    """Waits in the thread that calls it, while the event loop of the replica asks: handles are used from there."""

    def __init__(self, handle: DeploymentHandle, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = handle
        self._loop = loop

    def __call__(self, prompt: str) -> bytes:
        """Not from the event loop. Raises TextEncoderUnavailable."""
        return self._wait(self._ask("encode", prompt), _ANSWER_S)

    def fingerprint(self) -> str:
        """Of the weights, once they are loaded. Not from the event loop. Raises TextEncoderUnavailable."""
        return self._wait(self._ask("fingerprint"), _START_S)

    async def _ask(self, method: str, *given: str) -> Any:
        return await getattr(self._handle, method).remote(*given)

    def _wait(self, answer: Coroutine[Any, Any, Answer], limit_s: float) -> Answer:
        asked = asyncio.run_coroutine_threadsafe(answer, self._loop)
        try:
            return asked.result(limit_s)
        except concurrent.futures.TimeoutError:
            asked.cancel()
            raise TextEncoderUnavailable(f"no answer within {limit_s} s") from None
        except Exception as problem:  # whatever Ray makes of a process that is gone: nothing of it is the job's fault
            raise TextEncoderUnavailable(f"{type(problem).__name__}: {problem}") from problem
