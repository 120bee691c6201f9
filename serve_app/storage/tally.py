"""Counters buffered in memory and added to the task store once a second.

Each is a hash `gen:tally:{name}` of counters that only grow, so those of all processes add up. What a process that is
killed had not added yet is lost: figures, no accounts. One that stops in order adds the rest.
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


class Tallied(StrEnum):
    REQUESTS = "requests"
    """Answers to HTTP requests: histograms in ms by `method status route`."""
    REFUSALS = "refusals"
    """Submissions that were refused, by `reason endpoint`."""
    MODERATION = "moderation"
    """How long moderation took: histograms in ms by what was moderated."""


TIMES: Final = Buckets((5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000, 30_000, 180_000), per_unit=1000)
"""Of all its histograms, ms."""


class Tally:
    """Used from one event loop. Labels must be of a bounded number: nothing that clients choose freely."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[Tallied, str], float] = defaultdict(float)
        self._observed: defaultdict[tuple[Tallied, str], list[float]] = defaultdict(_nothing_observed)
        """Of each histogram its buckets, and the sum."""
        self._adding = asyncio.Lock()

    def count(self, what: Tallied, name: str) -> None:
        self._counts[what, name] += 1

    def observe(self, what: Tallied, name: str, seconds: float) -> None:
        """Adds to the histogram `name`."""
        ms = 1000 * seconds
        histogram = self._observed[what, name]
        histogram[bisect_left(TIMES.bounds, ms)] += 1
        histogram[-1] += ms

    async def add_to(self, redis: Redis, prefix: str) -> None:
        """Adds what was counted since the last time. Raises RedisError; then it is added next time, and once too often
        where only the answer was lost."""
        async with self._adding:
            added = self._taken()
            if not added:
                return
            pipe = redis.pipeline(transaction=True)
            for (what, field), amount in added.items():
                pipe.hincrbyfloat(f"{prefix}tally:{what}", field, round(amount, 3))
            try:
                await pipe.execute()
            except RedisError:
                for key, amount in added.items():
                    self._counts[key] += amount
                raise

    def _taken(self) -> dict[tuple[Tallied, str], float]:
        """What was counted so far, by field; it begins anew."""
        added, self._counts = dict(self._counts), defaultdict(float)
        for (what, name), histogram in self._observed.items():
            fields = [*TIMES.fields(name), sum_field(name)]
            for field, amount in zip(fields, histogram, strict=True):
                if amount:
                    added[what, field] = added.get((what, field), 0) + amount
        self._observed.clear()
        return added

    async def keep_adding(self, redis: Redis, prefix: str) -> None:
        while True:
            await rest(_EVERY_S)
            with suppress(RedisError):
                # Not to be broken off: nobody would know whether it was done. `add_rest` waits for it.
                await asyncio.shield(self.add_to(redis, prefix))

    async def add_rest(self, redis: Redis, prefix: str) -> None:
        """Before the process ends."""
        with suppress(RedisError, TimeoutError):
            async with asyncio.timeout(_LAST_S):
                await self.add_to(redis, prefix)

    @asynccontextmanager
    async def kept(self, redis: Redis, prefix: str) -> AsyncIterator[None]:
        """Adds what is counted meanwhile."""
        adding = asyncio.create_task(self.keep_adding(redis, prefix))
        try:
            yield
        finally:
            adding.cancel()
            await asyncio.wait([adding])
            await self.add_rest(redis, prefix)


def _nothing_observed() -> list[float]:
    return [0.0] * (len(TIMES.bounds) + 2)


async def tallied(redis: Redis, prefix: str, what: Tallied) -> dict[str, str]:
    """What all processes counted."""
    return await cast(Awaitable[dict[str, str]], redis.hgetall(f"{prefix}tally:{what}"))
