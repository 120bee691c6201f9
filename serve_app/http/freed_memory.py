"""The memory of large bodies goes back to the system when they are done with."""

from __future__ import annotations

import ctypes
from typing import Final

_M_MMAP_THRESHOLD: Final = -3
"""As malloc.h has it."""
_LARGE_BYTES: Final = 128 * 1024


def give_back_large_blocks() -> None:
    """From now on, for this process. Does nothing where the C library is not glibc.

    By itself glibc takes the first large blocks that are freed for a sign that there will be more: it puts blocks of up
    to 32 MiB between small ones, and there the memory stays.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
