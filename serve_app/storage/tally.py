"""Metric counters, buffered in memory and added to the task store once a second.

Each is a hash `gen:tally:{name}` of counters that only grow, to which all processes add. A process that stops in order
flushes its counts first; those of a killed process since the last flush are lost.
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

_FLUSH_INTERVAL_S: Final = 1.0
_LAST_FLUSH_S: Final = 3.0
"""Seconds that a stopping process waits for the task store."""


class CounterName(StrEnum):
    REQUESTS = "requests"
    """HTTP responses: histograms in ms by `method status route`."""
    REFUSALS = "refusals"
    """Refused submissions by `reason endpoint`."""
    MODERATION = "moderation"
    """Duration of moderation calls: histograms in ms by call."""


TIMES: Final = Buckets((5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000, 30_000, 180_000), per_unit=1000)
"""Buckets of all histograms, ms."""


class CounterBuffer:
    """Counters for one event loop. Their labels must be bounded in number: none that clients choose freely."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[CounterName, str], float] = defaultdict(float)
        self._histograms: defaultdict[tuple[CounterName, str], list[float]] = defaultdict(_new_histogram)
        """Counts of each histogram's buckets, then the sum of its values."""
        self._flushing = asyncio.Lock()

    def count(self, counter: CounterName, label: str) -> None:
        self._counts[counter, label] += 1

    def observe(self, counter: CounterName, label: str, seconds: float) -> None:
        ms = 1000 * seconds
        histogram = self._histograms[counter, label]
        histogram[bisect_left(TIMES.bounds, ms)] += 1
        histogram[-1] += ms

    async def flush(self, redis: Redis, prefix: str) -> None:
        """Adds the counts since the last flush to the store.

        Raises RedisError; the next flush adds these counts again, twice if only the answer was lost.
        """
        async with self._flushing:
            amounts = self._take()
            if not amounts:
                return
            pipe = redis.pipeline(transaction=True)
            for (counter, field), amount in amounts.items():
                pipe.hincrbyfloat(f"{prefix}tally:{counter}", field, round(amount, 3))
            try:
                await pipe.execute()
            except RedisError:
                for key, amount in amounts.items():
                    self._counts[key] += amount
                raise

    def _take(self) -> dict[tuple[CounterName, str], float]:
        """Returns and resets the counts, by field."""
        amounts, self._counts = dict(self._counts), defaultdict(float)
        for (counter, label), histogram in self._histograms.items():
            fields = [*TIMES.fields(label), sum_field(label)]
            for field, amount in zip(fields, histogram, strict=True):
                if amount:
                    amounts[counter, field] = amounts.get((counter, field), 0) + amount
        self._histograms.clear()
        return amounts

    async def flush_forever(self, redis: Redis, prefix: str) -> None:
        while True:
            await rest(_FLUSH_INTERVAL_S)
            # After a cancelled flush it would be unknown whether it was done. `flush_at_exit` waits for it.
            await asyncio.shield(self._try_flush(redis, prefix))

    async def _try_flush(self, redis: Redis, prefix: str) -> None:
        with suppress(RedisError):
            await self.flush(redis, prefix)

    async def flush_at_exit(self, redis: Redis, prefix: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_FLUSH_S):
                await self._try_flush(redis, prefix)

    @asynccontextmanager
    async def flush_periodically(self, redis: Redis, prefix: str) -> AsyncIterator[None]:
        flushing = asyncio.create_task(self.flush_forever(redis, prefix))
        try:
            yield
        finally:
            flushing.cancel()
            await asyncio.wait([flushing])
            await self.flush_at_exit(redis, prefix)


def _new_histogram() -> list[float]:
    return [0.0] * (len(TIMES.bounds) + 2)


async def read_counters(redis: Redis, prefix: str, counter: CounterName) -> dict[str, str]:
    """Returns the counts of all processes, by field."""
    return await cast(Awaitable[dict[str, str]], redis.hgetall(f"{prefix}tally:{counter}"))
