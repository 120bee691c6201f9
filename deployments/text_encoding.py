"""The shared text-encoder deployment, for models whose checkpoints have the same text encoders.

Four models of Flux1 would hold four T5 of 9 GB: so they hold one. What waits meanwhile is read together, whichever
model asks.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from ray.serve.handle import DeploymentHandle

from deployments.backend import TextEncoderUnavailable
from deployments.batcher import Batcher
from deployments.contract.model import TextEncoderSpec
from deployments.proxies import apply_proxy
from deployments.telemetry import logs

logger = logging.getLogger(__name__)

_LIMIT_S = 60.0
"""A batch that takes longer than this counts as hung."""
_FAULTS = 20
"""So many batches in a row that failed: the device is broken, not the prompts."""


class TextEncoder:
    """Loads and reads in one thread of its own; the event loop stays free."""

    async def __init__(self, spec: TextEncoderSpec) -> None:
        logs.begin(spec.logs)
        apply_proxy(spec.proxy)
        began = time.monotonic()
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="text encoder")
        encode, self._fingerprint = await asyncio.get_running_loop().run_in_executor(thread, _load, spec)
        self._prompts = Batcher(encode, thread, spec.max_batch)
        logger.info("the text encoders of %s are loaded after %.1f s", spec.checkpoint, time.monotonic() - began)

    async def encode(self, prompt: str) -> bytes:
        """What `families.prompts.from_bytes` reads. A call cancelled before its turn costs nothing."""
        return await self._prompts(prompt)

    async def fingerprint(self) -> str:
        """Of the weights: models with others must not be given what these make."""
        return self._fingerprint

    async def check_health(self) -> None:
        """Raises when a new process would do better: a hung batch, or nothing but errors."""
        self._prompts.check_health(_LIMIT_S, _FAULTS)


def _load(spec: TextEncoderSpec) -> tuple[Callable[[Sequence[str]], list[bytes]], str]:
    """Runs in the thread that will read, since torch counts threads per thread that calls it."""
    import torch

    from deployments import native_loading
    from deployments.families.conditioning import as_bytes
    from deployments.torch_process import set_up_torch

    set_up_torch(spec.threads)
    encoder, fingerprint = native_loading.load_prompt_encoder(
        spec.checkpoint, revision=spec.revision, device=spec.device, dtype=spec.dtype
    )

    def encode(prompts: Sequence[str]) -> list[bytes]:
        with torch.inference_mode():
            return [as_bytes(embeds) for embeds in encoder.encode(prompts)]

    return encode, fingerprint


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

    async def _ask(self, method: str, *arguments: str) -> Any:
        return await getattr(self._handle, method).remote(*arguments)

    def _wait(self, answer: Coroutine[Any, Any, Answer], limit_s: float) -> Answer:
        future = asyncio.run_coroutine_threadsafe(answer, self._loop)
        try:
            return future.result(limit_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise TextEncoderUnavailable(f"no answer within {limit_s} s") from None
        except Exception as problem:  # whatever Ray makes of a process that is gone: nothing of it is the job's fault
            raise TextEncoderUnavailable(f"{type(problem).__name__}: {problem}") from problem
