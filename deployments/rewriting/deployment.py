"""The prompt-rewriting deployment."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from deployments.contract.model import RewriterSpec
from deployments.proxies import apply_proxy
from deployments.telemetry import logs

if TYPE_CHECKING:
    from deployments.rewriting.rewriter import Rewriter

logger = logging.getLogger(__name__)

_LIMIT_S = 120.0
"""A single prompt that takes longer than this counts as hung."""

_FAULTS = 20
"""So many prompts in a row that failed: the device is broken, not the prompts."""


class PromptRewriter:
    """Loads and writes in one thread of its own, one prompt after the other; the event loop stays free."""

    async def __init__(self, spec: RewriterSpec) -> None:
        logs.begin(spec.logs)
        apply_proxy(spec.proxy)
        self._busy_since: float | None = None
        self._faults = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rewriter")
        began = time.monotonic()
        self._rewriter = await asyncio.get_running_loop().run_in_executor(self._thread, _load, spec)
        logger.info("%s is loaded and serves after %.1f s", spec.checkpoint, time.monotonic() - began)

    async def rewrite(self, prompt: str, seed: int, edit: bool = False) -> str:
        """The new prompt, the same one for the same seed. A call cancelled before its turn costs nothing."""
        return await self._in_turn(lambda: self._rewriter.rewrite(prompt, seed, edit=edit))

    async def ratio(self, prompt: str, seed: int) -> str:
        """A text that says which ratio suits the prompt; otherwise as `rewrite`."""
        return await self._in_turn(lambda: self._rewriter.ratio(prompt, seed))

    async def check_health(self) -> None:
        """Raises when a new process would do better: a hung prompt, or nothing but errors."""
        busy_since = self._busy_since
        if busy_since is not None and time.monotonic() - busy_since > _LIMIT_S:
            raise RuntimeError(f"a prompt has been in work for more than {_LIMIT_S} s")
        if self._faults >= _FAULTS:
            raise RuntimeError(f"{self._faults} prompts in a row failed")

    async def _in_turn(self, write: Callable[[], str]) -> str:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._write, write)

    def _write(self, write: Callable[[], str]) -> str:
        self._busy_since = time.monotonic()
        try:
            result = write()
        except Exception:
            self._faults += 1
            raise
        finally:
            self._busy_since = None
        self._faults = 0
        return result


def _load(spec: RewriterSpec) -> Rewriter:
    """Runs in the thread that will write, since torch counts threads per thread that calls it."""
    from deployments.rewriting.rewriter import Rewriter
    from deployments.torch_process import set_up_torch

    set_up_torch(spec.threads)
    return Rewriter(spec)
