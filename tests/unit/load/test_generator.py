from __future__ import annotations

import asyncio

from support.local_dialect import LocalDialect

from serve_app.load.generator import generate
from serve_app.load.outcome import Outcome
from serve_app.load.request import Request
from serve_app.load.shape import Shape, Size
from serve_app.load.target import Target


def target(base_url: str, limit: float = 5.0) -> Target:
    return Target(base_url=base_url, limit=limit, poll_every=0.01)


def at(*moments: float) -> list[Request]:
    return [Request(n, moment, "gen-any", Shape(), "all", "a", n, Size(64, 64)) for n, moment in enumerate(moments)]


async def test_every_task_is_followed_to_its_end() -> None:
    ended: list[Outcome] = []
    async with LocalDialect().serving() as server:
        outcomes, strain = await generate(target(server.base_url), at(0.0, 0.01, 0.02), ended.append)
    assert [one.end for one in outcomes] == ["served"] * 3
    assert [one.number for one in outcomes] == [0, 1, 2]
    assert [one.polls for one in outcomes] == [2, 2, 2]
    assert {id(one) for one in ended} == {id(one) for one in outcomes}
    assert all(lag >= 0 for lag in strain.loop_lag)


async def test_requests_never_wait_for_answers() -> None:
    server = LocalDialect()
    server.answer_after = 60.0
    async with server.serving():
        stop = asyncio.Event()
        sending = asyncio.create_task(generate(target(server.base_url, limit=90), at(0.0, 0.01, 0.02), stop=stop))
        while server.begun < 3:
            await asyncio.sleep(0.01)
        stop.set()
        outcomes, _ = await sending
    assert [one.end for one in outcomes] == ["interrupted"] * 3


async def test_refused_and_lost_tasks_are_told_apart() -> None:
    async with LocalDialect(refuse_every=2, forgotten=frozenset({3})).serving() as server:
        outcomes, _ = await generate(target(server.base_url, limit=0.3), at(0.0, 0.1, 0.2))
    assert [(one.end, one.reason) for one in outcomes] == [
        ("served", ""),
        ("refused", "HTTP 429"),
        ("lost", "never seen to end"),
    ]


async def test_a_server_that_is_not_there_fails(unused_tcp_port: int) -> None:
    [outcome], _ = await generate(target(f"http://127.0.0.1:{unused_tcp_port}", limit=1), at(0.0))
    assert (outcome.end, outcome.reason, outcome.time_to_result) == ("failed", "ConnectError", None)


async def test_what_was_not_sent_when_it_is_stopped_is_no_outcome() -> None:
    stop = asyncio.Event()
    async with LocalDialect().serving() as server:
        outcomes, _ = await generate(target(server.base_url), at(0.0, 3600.0), lambda _: stop.set(), stop=stop)
    assert [one.number for one in outcomes] == [0]
