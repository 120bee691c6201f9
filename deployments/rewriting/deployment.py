"""The prompt-rewriting deployment."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from deployments.batcher import Batcher
from deployments.contract.model import RewriterSpec
from deployments.proxies import apply_proxy
from deployments.telemetry import logs

if TYPE_CHECKING:
    from deployments.rewriting.rewriter import Rewriter

logger = logging.getLogger(__name__)

_MAX_PROMPT_S = 120.0
"""Seconds after which a prompt counts as hung."""
_MAX_FAULTS = 20
"""Failed prompts in a row after which the device is broken, not the prompts."""


class PromptRewriter:
    """Rewrites one prompt after the other in its own thread, so that the event loop stays free."""

    async def __init__(self, spec: RewriterSpec) -> None:
        logs.configure_replica(spec.logs)
        apply_proxy(spec.proxy)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rewriter")
        started_at = time.monotonic()
        self._rewriter = await asyncio.get_running_loop().run_in_executor(self._thread, _load, spec)
        self._calls: Batcher[Callable[[], str], str] = Batcher(
            lambda calls: [call() for call in calls], self._thread, max_batch=1, item_faults=()
        )
        logger.info("%s is loaded and serves after %.1f s", spec.checkpoint, time.monotonic() - started_at)

    async def rewrite(self, prompt: str, seed: int, edit: bool = False) -> str:
        """Returns the new prompt, the same for equal seeds. A call cancelled while it waits costs nothing."""
        return await self._calls(lambda: self._rewriter.rewrite(prompt, seed, edit=edit))

    async def ratio(self, prompt: str, seed: int) -> str:
        """Returns a text with the ratio that suits the prompt."""
        return await self._calls(lambda: self._rewriter.ratio(prompt, seed))

    async def check_health(self) -> None:
        """Raises RuntimeError if a new process would help: a prompt hangs, or only errors occur."""
        self._calls.check_health(_MAX_PROMPT_S, _MAX_FAULTS)


def _load(spec: RewriterSpec) -> Rewriter:
    """Loads the rewriter in the thread that will use it, as torch's number of threads is per calling thread."""
    from deployments.rewriting.rewriter import Rewriter
    from deployments.torch_process import set_up_torch

    set_up_torch(spec.threads)
    return Rewriter(spec)
