"""What torch says when memory runs out, in the engine's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from deployments.engine.backend import OutOfMemory


@contextmanager
def translated_out_of_memory() -> Iterator[None]:
    """Turns torch's ways of saying that memory ran out into OutOfMemory, and hands cached blocks back to the device."""
    exhausted: str | None = None
    try:
        yield
    except torch.OutOfMemoryError as error:
        exhausted = str(error)
    except RuntimeError as error:
        # The CPU allocator has no error class of its own.
        if "not enough memory" not in str(error) and "can't allocate memory" not in str(error):
            raise
        exhausted = str(error)
    if exhausted is not None:
        # Outside the handler: there, the traceback would keep the failed tensors alive.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        raise OutOfMemory(exhausted)
