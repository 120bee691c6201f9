"""How the tasks of one lane come to its model: prepared many at a time, called few at a time.

Preparing is what happens before the model: judging the request, rewriting the prompt. It takes as long as others take
for it, so it has a bound of its own, which follows what the model can take. Little's law says both: as many are under
way as begin in the time that one takes, and as many begin as run by the time that one runs. Counting how many began of
late would take a model that begins with a batch every ten seconds for a fast one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeAlias

Key: TypeAlias = tuple[str, int]

_AT_LEAST_S: Final = 1.0
"""A run is taken to last, while none has ended: models begin with whole batches at a time."""
_SHORTEST_S: Final = 0.001
_NEWEST_COUNTS: Final = 0.2
"""Weight of the newest in the mean times that preparing and running take."""
_AT_FIRST: Final = 4
"""Tasks prepared at a time while nothing is known of the pace, as a multiple of the headroom."""
_AMPLE: Final = 2
"""Times what Little's law asks for: the pace can only grow if more are prepared than it needs."""


class Flow:
    """The attempts of one lane in one process, from their lease to their end.

    `headroom` bounds those that the model was called for and has not begun with; `max_preparing` those that are being
    prepared, whatever the pace.
    """

    def __init__(self, headroom: int, max_preparing: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._headroom = headroom
        self._max_preparing = max_preparing
        self._clock = clock
        self._preparing: dict[Key, float] = {}
        self._prepared: dict[Key, asyncio.Event] = {}
        self._called: set[Key] = set()
        self._running: dict[Key, float] = {}
        self._preparing_s = 0.0
        self._running_s: float | None = None
        self._open = True

    def room(self) -> int:
        """How many tasks to lease now; none if not positive."""
        ahead = self._ahead()
        backlog = len(self._prepared) + len(self._called) - self._headroom
        preparing = min(max(_AT_FIRST * self._headroom, ahead), self._max_preparing) - len(self._preparing)
        return min(ahead - backlog, preparing - max(0, backlog))

    def enter(self, key: Key) -> None:
        """The attempt was leased."""
        self._preparing[key] = self._clock()

    async def turn(self, key: Key) -> None:
        """The attempt is prepared. Returns when the model may be called for it: first prepared, first called."""
        took_s = self._clock() - self._preparing.pop(key)
        self._preparing_s += _NEWEST_COUNTS * (took_s - self._preparing_s)
        turn = self._prepared[key] = asyncio.Event()
        self._give_turns()
        await turn.wait()

    def start(self, key: Key) -> None:
        """The model has begun with it."""
        self._running[key] = self._clock()
        self._called.discard(key)
        self._give_turns()

    def leave(self, key: Key) -> None:
        """The attempt is over. May be told more than once."""
        began = self._running.pop(key, None)
        if began is not None:
            took_s = self._clock() - began
            known = took_s if self._running_s is None else self._running_s
            self._running_s = known + _NEWEST_COUNTS * (took_s - known)
        self._preparing.pop(key, None)
        self._prepared.pop(key, None)
        self._called.discard(key)
        self._give_turns()

    def close(self) -> None:
        """Nobody waits for a turn any more: whoever gets one looks whether it may still be taken."""
        self._open = False
        self._give_turns()

    def _give_turns(self) -> None:
        while self._prepared and (len(self._called) < self._headroom or not self._open):
            key = next(iter(self._prepared))
            self._called.add(key)
            self._prepared.pop(key).set()

    def _ahead(self) -> int:
        """What the model will have begun with by the time that a task leased now is prepared, and as much again."""
        return min(round(_AMPLE * self._starts_per_s() * self._preparing_s), self._max_preparing)

    def _starts_per_s(self) -> float:
        if not self._running:
            return 0.0
        if self._running_s is not None:
            return len(self._running) / max(self._running_s, _SHORTEST_S)
        oldest = next(iter(self._running.values()))
        return len(self._running) / max(self._clock() - oldest, _AT_LEAST_S)
