"""Cache of one call that concurrent callers share."""

from __future__ import annotations

import asyncio

import pytest
from support.virtual_backend import VirtualClock

from serve_app.api.single_flight import SingleFlightCache


class Source:
    """Counts its calls; each takes a pass of the event loop, and fails if `error` is set."""

    def __init__(self) -> None:
        self.calls = 0
        self.clock = VirtualClock()
        self.error: Exception | None = None
        self.cache = SingleFlightCache(self.call, 1.0, self.clock)

    async def call(self) -> int:
        self.calls += 1
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        return self.calls


async def test_concurrent_callers_share_a_value_for_its_ttl() -> None:
    source = Source()
    values = []
    for _ in range(4):
        values.append(await asyncio.gather(*(source.cache.get() for _ in range(5))))
        source.clock.now += 0.5
    assert values == [[1] * 5, [1] * 5, [2] * 5, [2] * 5]


async def test_concurrent_callers_share_an_error_that_is_not_cached() -> None:
    source = Source()
    source.error = ConnectionError()
    assert await asyncio.gather(*(source.cache.get() for _ in range(5)), return_exceptions=True) == [source.error] * 5
    assert source.calls == 1
    source.error = None
    assert await source.cache.get() == 2


@pytest.mark.parametrize("error", [None, ConnectionError()])
async def test_cancelled_caller_leaves_the_call_to_others(error: Exception | None) -> None:
    source = Source()
    source.error = error
    first, second = (asyncio.create_task(source.cache.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await asyncio.gather(first, return_exceptions=True) != [1]
    assert await asyncio.gather(second, return_exceptions=True) == [error or 1]
    assert source.calls == 1
