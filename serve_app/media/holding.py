"""How much of what a request has fetched is held: whoever bounds it says so to all that is done for the request."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar


def _unbounded(size: int) -> None: ...


hold: ContextVar[Callable[[int], None]] = ContextVar("hold", default=_unbounded)
"""To be called with each further number of bytes, which are held until the request ends; raises where there is no room
for them."""
