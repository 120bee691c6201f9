"""Counters buffered in memory and added to the task store once a second.

Each is a hash `gen:tally:{name}` of counters that only grow, so those of all processes add up. What a process that is
killed had not added yet is lost: metrics, no accounts. One that stops in order adds the rest.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from typing import Final, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from deployments.contract.counts import Buckets, sum_field
from serve_app.background import rest

_EVERY_S: Final = 1.0
_LAST_S: Final = 3.0
"""How long a process that stops waits for the task store."""


class CounterName(StrEnum):
    REQUESTS = "requests"
    """Answers to HTTP requests: histograms in ms by `method status route`."""
    REFUSALS = "refusals"
    """Submissions that were refused, by `reason endpoint`."""
    MODERATION = "moderation"
    """How long moderation took: histograms in ms by what was moderated."""


TIMES: Final = Buckets((5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000, 30_000, 180_000), per_unit=1000)
"""Of all its histograms, ms."""


class CounterBuffer:
    """Used from one event loop. Labels must be of a bounded number: nothing that clients choose freely."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[CounterName, str], float] = defaultdict(float)
        self._histograms: defaultdict[tuple[CounterName, str], list[float]] = defaultdict(_new_histogram)
        """Of each histogram its buckets, and the sum."""
        self._adding = asyncio.Lock()

    def count(self, what: CounterName, name: str) -> None:
        self._counts[what, name] += 1

    def observe(self, what: CounterName, name: str, seconds: float) -> None:
        """Adds to the histogram `name`."""
        ms = 1000 * seconds
        histogram = self._histograms[what, name]
        histogram[bisect_left(TIMES.bounds, ms)] += 1
        histogram[-1] += ms

    async def add_to(self, redis: Redis, prefix: str) -> None:
        """Adds what was counted since the last time. Raises RedisError; then it is added next time, and once too often
        where only the answer was lost."""
        async with self._adding:
            amounts = self._take()
            if not amounts:
                return
            pipe = redis.pipeline(transaction=True)
            for (what, field), amount in amounts.items():
                pipe.hincrbyfloat(f"{prefix}tally:{what}", field, round(amount, 3))
            try:
                await pipe.execute()
            except RedisError:
                for key, amount in amounts.items():
                    self._counts[key] += amount
                raise

    def _take(self) -> dict[tuple[CounterName, str], float]:
        """What was counted so far, by field; it begins anew."""
        amounts, self._counts = dict(self._counts), defaultdict(float)
        for (what, name), histogram in self._histograms.items():
            fields = [*TIMES.fields(name), sum_field(name)]
            for field, amount in zip(fields, histogram, strict=True):
                if amount:
                    amounts[what, field] = amounts.get((what, field), 0) + amount
        self._histograms.clear()
        return amounts

    async def keep_adding(self, redis: Redis, prefix: str) -> None:
        while True:
            await rest(_EVERY_S)
            # Not to be broken off: it would be unknown whether it was done. `add_rest` waits for it.
            await asyncio.shield(self._try_add_to(redis, prefix))

    async def _try_add_to(self, redis: Redis, prefix: str) -> None:
        with suppress(RedisError):
            await self.add_to(redis, prefix)

    async def add_rest(self, redis: Redis, prefix: str) -> None:
        """Before the process ends."""
        with suppress(RedisError, TimeoutError):
            async with asyncio.timeout(_LAST_S):
                await self.add_to(redis, prefix)

    @asynccontextmanager
    async def flush_periodically(self, redis: Redis, prefix: str) -> AsyncIterator[None]:
        """Adds what is counted meanwhile."""
        adding = asyncio.create_task(self.keep_adding(redis, prefix))
        try:
            yield
        finally:
            adding.cancel()
            await asyncio.wait([adding])
            await self.add_rest(redis, prefix)


def _new_histogram() -> list[float]:
    return [0.0] * (len(TIMES.bounds) + 2)


async def read_counters(redis: Redis, prefix: str, what: CounterName) -> dict[str, str]:
    """What all processes counted."""
    return await cast(Awaitable[dict[str, str]], redis.hgetall(f"{prefix}tally:{what}"))
