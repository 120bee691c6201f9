"""Memory of large requests: a budget for all requests of this process, and malloc's settings."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from fastapi import HTTPException

from serve_app.api.errors import SHORTLY

FREE_BYTES: Final = 64 * 1024
"""Bytes that a reservation may hold without counting against the budget."""
_NO_ROOM: Final = "Too many large requests at a time, nothing was accepted or charged; try again shortly"


class InflightBudget:
    """Limits the bytes that request bodies and fetched files hold at a time, over all requests of this process."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0

    @contextmanager
    def reservation(self, headers: Mapping[str, str]) -> Iterator[Reservation]:
        """Yields an empty reservation and frees it at the end. `headers` go with its 503."""
        reservation = Reservation(self, headers)
        try:
            yield reservation
        finally:
            self.used_bytes -= reservation.counted_bytes


class Reservation:
    """The share of one request in an `InflightBudget`. Growing raises HTTPException 503 where the budget is used up."""

    def __init__(self, budget: InflightBudget, headers: Mapping[str, str]) -> None:
        self._budget, self._headers = budget, headers
        self._size = 0
        self.counted_bytes = 0

    def grow(self, size: int) -> None:
        self.grow_to(self._size + size)

    def grow_to(self, size: int) -> None:
        self._size = max(size, self._size)
        added = self._size - self.counted_bytes
        if self._size <= FREE_BYTES or not added:
            return
        if self._budget.used_bytes + added > self._budget.max_bytes:
            raise HTTPException(503, _NO_ROOM, {**SHORTLY, **self._headers})
        self._budget.used_bytes += added
        self.counted_bytes = self._size


_M_MMAP_THRESHOLD: Final = -3
"""Number of the parameter in malloc.h."""
_LARGE_BYTES: Final = 128 * 1024


def tune_malloc() -> None:
    """Makes glibc return each freed block of over 128 KiB to the system. Does nothing with another C library.

    By default glibc raises its threshold when the first large blocks are freed. It then places blocks of up to 32 MiB
    between small ones, where the memory stays.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
