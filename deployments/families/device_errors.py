"""Translation of torch's device errors into the engine's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from deployments.backend import DeviceBroken, OutOfMemory

_NO_MEMORY: Final = (
    "not enough memory",  # of the CPU allocator, which has no error class
    "can't allocate memory",
    "out of memory",  # outside of torch's allocator: a stream, a library's workspace
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
_REFUSED: Final = (
    "invalid argument",
    "invalid configuration argument",
    "CUBLAS_STATUS_INVALID_VALUE",
    "CUBLAS_STATUS_NOT_SUPPORTED",
)
"""Errors of a call that never ran because of its arguments; the next one may."""
_FAILED: Final = (
    "device-side assert",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_INTERNAL_ERROR",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR",
)


_CONTEXT: Final = 2**30
"""Bytes of device memory that this process may hold outside of torch, for its context and libraries."""


@contextmanager
def translate_device_errors() -> Iterator[None]:
    """Turns torch's errors of memory into OutOfMemory, after returning cached blocks to the device, and those of a
    failed device into DeviceBroken."""
    message: str | None = None
    try:
        yield
    except (torch.OutOfMemoryError, OutOfMemory) as error:  # the latter from libraries beside torch
        message = str(error)
    except RuntimeError as error:
        text = str(error)
        if not any(words in text for words in _NO_MEMORY):
            if _is_broken(error, text):
                raise DeviceBroken(text) from error
            raise
        message = text
    if message is not None:
        # Outside the handler: the traceback would keep the failed tensors alive.
        is_shared = False
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            is_shared = _is_memory_shared()
        raise OutOfMemory(message, shared_gpu_memory=is_shared)


def _is_memory_shared() -> bool:
    """Returns whether other processes hold memory of this one's share of the current CUDA device."""
    free, total = torch.cuda.mem_get_info()
    outside_limit = total * (1 - torch.cuda.get_per_process_memory_fraction())
    return total - free - torch.cuda.memory_reserved() > outside_limit + _CONTEXT


def _is_broken(error: RuntimeError, text: str) -> bool:
    """Returns whether every later call in this process fails, too: CUDA gives up a context at its first error."""
    if any(words in text for words in _REFUSED):
        return False
    is_device_error = isinstance(error, torch.AcceleratorError) or text.startswith("CUDA error:")
    return is_device_error or any(words in text for words in _FAILED)
