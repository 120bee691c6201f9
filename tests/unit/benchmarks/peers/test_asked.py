from __future__ import annotations

import asyncio
import io

from PIL import Image

from benchmarks.peers.asked import Asked, at_a_time, at_moments
from benchmarks.peers.request import Request, in_turns

SHAPE = (64, 64, 4)


def jpeg(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "jpeg")
    return file.getvalue()


def test_a_picture_of_another_size_does_not_count_as_drawn() -> None:
    asked = Asked.now(Request("", 64, 96, 4, seed=1))
    assert not asked.drawn
    asked.jpeg = jpeg(96, 64)
    assert not asked.drawn
    asked.jpeg = jpeg(64, 96)
    assert asked.drawn


def test_the_time_to_a_result_counts_from_when_it_should_have_been_sent() -> None:
    asked = Asked(Request("", *SHAPE, seed=1), scheduled=10.0)
    assert asked.total is None
    asked.done = 12.5
    assert asked.total == 2.5


async def test_no_more_clients_ask_at_a_time_than_there_are_and_all_requests_are_sent() -> None:
    now, most = 0, 0

    async def ask(asked: Asked) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    asked, seconds = await at_a_time(ask, in_turns([SHAPE], 7, seed=0), clients=3)
    assert most == 3
    assert sorted(one.request.seed for one in asked) == list(range(7))
    assert seconds > 0


async def test_an_open_loop_sends_whether_or_not_answers_have_come() -> None:
    sent: list[int] = []
    all_sent = asyncio.Event()

    async def ask(asked: Asked) -> None:
        sent.append(asked.request.seed)
        if len(sent) == 3:
            all_sent.set()
        await all_sent.wait()

    asked = await at_moments(ask, in_turns([SHAPE], 3, seed=5), [0.0, 0.001, 0.002])
    assert sent == [5, 6, 7]
    assert [one.scheduled for one in asked] == sorted(one.scheduled for one in asked)
