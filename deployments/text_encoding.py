"""The shared text-encoder deployment, for models whose checkpoints have the same text encoders.

Four models of Flux1 share one T5 of 9 GB in place of four. Waiting prompts of all models are encoded together.
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

_MAX_BATCH_S = 60.0
"""Seconds after which a batch counts as hung."""
_MAX_FAULTS = 20
"""Failed batches in a row after which the device is broken, not the prompts."""


class TextEncoder:
    """Encodes prompts in its own thread, so that the event loop stays free."""

    async def __init__(self, spec: TextEncoderSpec) -> None:
        logs.configure_replica(spec.logs)
        apply_proxy(spec.proxy)
        started_at = time.monotonic()
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="text encoder")
        encode, self._fingerprint = await asyncio.get_running_loop().run_in_executor(thread, _load, spec)
        self._prompts = Batcher(encode, thread, spec.max_batch)
        logger.info("the text encoders of %s are loaded after %.1f s", spec.checkpoint, time.monotonic() - started_at)

    async def encode(self, prompt: str) -> bytes:
        """Returns bytes for `families.conditioning.from_bytes`. A call cancelled while it waits costs nothing."""
        return await self._prompts(prompt)

    async def fingerprint(self) -> str:
        """Returns the fingerprint of the weights, which must equal that of the model."""
        return self._fingerprint

    async def check_health(self) -> None:
        """Raises RuntimeError if a new process would help: a batch hangs, or only errors occur."""
        self._prompts.check_health(_MAX_BATCH_S, _MAX_FAULTS)


def _load(spec: TextEncoderSpec) -> tuple[Callable[[Sequence[str]], list[bytes]], str]:
    """Loads the encoder in the thread that will use it, as torch's number of threads is per calling thread."""
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


_ENCODE_TIMEOUT_S: Final = 60.0
"""Seconds for one prompt, including the wait for others."""
_LOAD_TIMEOUT_S: Final = 1800.0
"""Seconds until the deployment is loaded, which may have to fetch the checkpoint."""

Answer = TypeVar("Answer")


class RemoteEncoder:
    """Calls the shared text encoder from other threads than the event loop, and waits in the calling thread."""

    def __init__(self, handle: DeploymentHandle, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = handle
        self._loop = loop

    def __call__(self, prompt: str) -> bytes:
        """Raises TextEncoderUnavailable."""
        return self._wait(self._call("encode", prompt), _ENCODE_TIMEOUT_S)

    def fingerprint(self) -> str:
        """Returns the fingerprint of the weights once they are loaded. Raises TextEncoderUnavailable."""
        return self._wait(self._call("fingerprint"), _LOAD_TIMEOUT_S)

    async def _call(self, method: str, *arguments: str) -> Any:
        return await getattr(self._handle, method).remote(*arguments)

    def _wait(self, answer: Coroutine[Any, Any, Answer], timeout_s: float) -> Answer:
        future = asyncio.run_coroutine_threadsafe(answer, self._loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise TextEncoderUnavailable(f"no answer within {timeout_s} s") from None
        except Exception as problem:  # Ray raises several types for a lost process; the job is not at fault
            raise TextEncoderUnavailable(f"{type(problem).__name__}: {problem}") from problem
