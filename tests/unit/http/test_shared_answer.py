from __future__ import annotations

import asyncio

import pytest
from support.virtual_backend import VirtualClock

from serve_app.api.services import SharedAnswer


class Asked:
    def __init__(self) -> None:
        self.times = 0
        self.clock = VirtualClock()
        self.breaks = False
        self.shared = SharedAnswer(self.ask, 1.0, self.clock)

    async def ask(self) -> int:
        self.times += 1
        await asyncio.sleep(0)
        if self.breaks:
            raise ConnectionError
        return self.times


async def test_all_who_come_together_share_one_answer() -> None:
    asked = Asked()
    assert await asyncio.gather(*(asked.shared.get() for _ in range(5))) == [1] * 5


async def test_an_answer_is_good_for_a_moment() -> None:
    asked = Asked()
    seen = []
    for _ in range(4):
        seen.append(await asked.shared.get())
        asked.clock.now += 0.5
    assert seen == [1, 1, 2, 2]


async def test_an_error_is_kept_for_nobody() -> None:
    asked = Asked()
    asked.breaks = True
    with pytest.raises(ConnectionError):
        await asked.shared.get()
    asked.breaks = False
    assert await asked.shared.get() == 2


async def test_whoever_gives_up_takes_the_answer_from_nobody() -> None:
    asked = Asked()
    first, second = (asyncio.create_task(asked.shared.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 2
