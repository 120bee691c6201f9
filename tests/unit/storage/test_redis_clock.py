"""What this process takes for the server's time, on clocks that the tests move."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest
from redis.asyncio import Redis
from support.clock import Clock

from serve_app.storage.scripts import RedisClock

APART_S = 5000.0
"""The server's clock is ahead of this process's by so much."""


@dataclass
class Server:
    """Answers `TIME` after `slow_s`, half of which the question is on its way."""

    clock: Clock = field(default_factory=Clock)
    apart_s: float = APART_S
    slow_s: float = 0.01
    calls: int = 0

    async def time(self) -> tuple[int, int]:
        self.calls += 1
        self.clock.sleep(self.slow_s / 2)
        now = self.clock.now + self.apart_s
        self.clock.sleep(self.slow_s / 2)
        return int(now), round(now % 1 * 1e6)

    @property
    def now(self) -> float:
        return self.clock.now + self.apart_s


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock(server: Server) -> RedisClock:
    return RedisClock(cast(Redis, server), server.clock.monotonic)


async def test_it_is_ahead_by_no_more_than_a_reading_took(server: Server, clock: RedisClock) -> None:
    for _ in range(100):
        ahead = await clock.now() - server.now
        assert -1e-5 < ahead <= server.slow_s
        server.clock.sleep(0.25)
    assert 2 <= server.calls <= 4, "it is read now and then"
    server.apart_s += 300
    clock.forget()
    assert abs(await clock.now() - server.now) < 0.02, "after a failover the time is that of the other server"


async def test_a_slow_reading_does_not_replace_a_fast_one(server: Server, clock: RedisClock) -> None:
    await clock.now()
    server.clock.sleep(60)
    server.slow_s = 8.0
    assert abs(await clock.now() - server.now) < 0.02
    await clock.now()
    assert server.calls == 3, "it is tried again"


async def test_a_slow_first_reading_will_do_until_one_is_fast(server: Server, clock: RedisClock) -> None:
    server.slow_s = 2.0
    assert -2.0 <= await clock.now() - server.now <= 0
    server.slow_s = 0.01
    assert -1e-5 < await clock.now() - server.now <= 0.01
