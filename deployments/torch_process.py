"""Torch settings of a process: threads, its share of GPU memory, side streams.

A worker without a CPU share, which is how replicas are started, gets one thread from Ray; a model wants the machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def set_up_torch(threads: int | None) -> None:
    """Takes so many threads, or one a core, and the share of a GPU that Ray gave to this process. Comes before CUDA."""
    torch.set_num_threads(threads or os.cpu_count() or 1)
    # Blocks that grow: images of many sizes leave no gaps between them.
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized() and torch.cuda.is_available():
        fraction = ray.get_runtime_context().get_assigned_resources().get("GPU", 0)
        if 0 < fraction < 1:
            torch.cuda.set_per_process_memory_fraction(fraction)


class SideStream:
    """A queue of work of its own on a CUDA device; nothing elsewhere. Used by one thread at a time.

    What is handed to it must be ready, and what it makes is ready when its context ends: then the caller's thread has
    waited for it, and no other.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def beside_the_steps(self) -> Iterator[None]:
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            yield
        wait_for(self._stream)


def wait_for(stream: Any) -> None:
    """Returns when the work of a CUDA stream is done. The thread sleeps meanwhile: `Stream.synchronize` spins, and
    would keep a core busy through every step."""
    event = torch.cuda.Event(blocking=True)
    event.record(stream)
    event.synchronize()


def wait_for_devices() -> None:
    """Returns when the work that the present thread has queued on CUDA devices is done; at once where there is none."""
    if torch.cuda.is_initialized():
        for device in range(torch.cuda.device_count()):
            wait_for(torch.cuda.current_stream(device))
