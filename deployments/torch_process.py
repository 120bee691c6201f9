"""Torch settings of a process: threads, its share of GPU memory, side streams.

Replicas are started without a CPU share, to which Ray gives one thread, while a model needs the whole machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def set_up_torch(threads: int | None) -> None:
    """Sets the threads, by default one per core, and Ray's share of a GPU. Must come before CUDA is initialized."""
    torch.set_num_threads(threads or os.cpu_count() or 1)
    # Segments that grow, so that images of many sizes leave no gaps.
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized() and torch.cuda.is_available():
        fraction = ray.get_runtime_context().get_assigned_resources().get("GPU", 0)
        if 0 < fraction < 1:
            torch.cuda.set_per_process_memory_fraction(fraction)


class SideStream:
    """A side stream on a CUDA device; no-op elsewhere. Not thread-safe.

    Inputs must be ready, and results are ready at the end of the context, for which only the calling thread waits.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def activate(self) -> Iterator[None]:
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            yield
        wait_for(self._stream)


def wait_for(stream: Any) -> None:
    """Waits for the work of a CUDA stream. The thread sleeps, while `Stream.synchronize` spins and would keep a core
    busy through every step."""
    event = torch.cuda.Event(blocking=True)
    event.record(stream)
    event.synchronize()


def wait_for_devices() -> None:
    """Waits for the work that the present thread has queued on CUDA devices."""
    if torch.cuda.is_initialized():
        for device in range(torch.cuda.device_count()):
            wait_for(torch.cuda.current_stream(device))
