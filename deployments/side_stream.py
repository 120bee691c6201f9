"""CUDA streams for work beside the steps, and waiting for a stream without a busy processor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


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
