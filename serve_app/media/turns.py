"""Few at a time of those that have something in common."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Final
from weakref import WeakValueDictionary


class Turns:
    """Hands out so many turns at a time for each key; who waits goes in the order of coming. For one event loop."""

    def __init__(self, per_key: int) -> None:
        self._per_key: Final = per_key
        self._of: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, key: Hashable) -> asyncio.Semaphore:
        """Keep it for as long as the turn is taken: it is forgotten with whoever holds it last."""
        turns = self._of.get(key)
        if turns is None:
            turns = self._of[key] = asyncio.Semaphore(self._per_key)
        return turns
