"""The Redis server's time as this process estimates it, on virtual clocks; the release of the client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest
import redis
from redis.asyncio import Redis
from support.clock import Clock

from serve_app.storage.redis_internals import WRITTEN_FOR
from serve_app.storage.scripts import RedisClock


@dataclass
class Server:
    """Answers `TIME` after `slow_s`, in the middle of which it reads its clock."""

    clock: Clock = field(default_factory=Clock)
    apart_s: float = 5000.0
    """Seconds that its clock is ahead of this process's."""
    slow_s: float = 0.01
    calls: int = 0

    async def time(self) -> tuple[int, int]:
        self.calls += 1
        self.clock.sleep(self.slow_s / 2)
        now = self.now
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


async def test_clock_is_ahead_by_at_most_a_reading(server: Server, clock: RedisClock) -> None:
    for _ in range(100):
        ahead = await clock.now() - server.now
        assert -1e-5 < ahead <= server.slow_s
        server.clock.sleep(0.25)
    assert 2 <= server.calls <= 4
    server.apart_s += 300
    clock.forget()
    assert abs(await clock.now() - server.now) < 0.02, "after a failover the time is that of the other server"


async def test_slow_reading_is_used_only_until_a_fast_one(server: Server, clock: RedisClock) -> None:
    server.slow_s = 2.0
    assert -2.0 <= await clock.now() - server.now <= 0
    server.slow_s = 0.01
    assert -1e-5 < await clock.now() - server.now <= 0.01
    server.clock.sleep(60)
    server.slow_s = 8.0
    assert abs(await clock.now() - server.now) < 0.02
    await clock.now()
    assert server.calls == 4, "each slow reading is tried again"


def test_redis_internals_are_of_the_installed_release() -> None:
    hint = f"compare redis_internals.py with redis-py {redis.__version__}, then set WRITTEN_FOR"
    assert redis.__version__.rpartition(".")[0] == WRITTEN_FOR, hint
