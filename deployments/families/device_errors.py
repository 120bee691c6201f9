"""Translation of torch's device errors into the engine's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from deployments.backend import DeviceBroken, OutOfMemory

_NO_MEMORY: Final = (
    "not enough memory",  # the CPU allocator has no error class of its own
    "can't allocate memory",
    "out of memory",  # from outside of torch's allocator: a stream, a library's workspace
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
_REFUSED: Final = (
    "invalid argument",
    "invalid configuration argument",
    "CUBLAS_STATUS_INVALID_VALUE",
    "CUBLAS_STATUS_NOT_SUPPORTED",
)
"""A call that never ran, for what it was asked: the next one may."""
_FAILED: Final = (
    "device-side assert",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_INTERNAL_ERROR",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR",
)


_CONTEXT: Final = 2**30
"""Bytes of a device's memory that this process may hold beside torch's, for its context and libraries."""


@contextmanager
def translate_device_errors() -> Iterator[None]:
    """Turns torch's ways of saying that memory ran out into OutOfMemory, and hands cached blocks back to the device.
    Its ways of saying that the device failed become DeviceBroken."""
    message: str | None = None
    try:
        yield
    except (torch.OutOfMemoryError, OutOfMemory) as error:  # the latter is what others beside torch ran into
        message = str(error)
    except RuntimeError as error:
        text = str(error)
        if not any(words in text for words in _NO_MEMORY):
            if _is_broken(error, text):
                raise DeviceBroken(text) from error
            raise
        message = text
    if message is not None:
        # Outside the handler: there, the traceback would keep the failed tensors alive.
        crowded = False
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            crowded = _others_hold_memory()
        raise OutOfMemory(message, others_hold_memory=crowded)


def _others_hold_memory() -> bool:
    """Whether other processes hold memory of this one's share of the current CUDA device."""
    free, total = torch.cuda.mem_get_info()
    outside_limit = total * (1 - torch.cuda.get_per_process_memory_fraction())
    return total - free - torch.cuda.memory_reserved() > outside_limit + _CONTEXT


def _is_broken(error: RuntimeError, text: str) -> bool:
    """Whether every later call in this process fails likewise: CUDA gives a context up at the first such error."""
    if any(words in text for words in _REFUSED):
        return False
    said_by_device = isinstance(error, torch.AcceleratorError) or text.startswith("CUDA error:")
    return said_by_device or any(words in text for words in _FAILED)
