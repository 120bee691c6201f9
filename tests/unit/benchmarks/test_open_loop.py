from __future__ import annotations

import pytest
from support.local_dialect import LocalDialect

from benchmarks import open_loop
from benchmarks.open_loop import Load
from benchmarks.outcomes import Outcome


def load(server: LocalDialect, limit: float = 5.0) -> Load:
    return Load(server.base_url, "key", "gen-any", {"prompt": "a"}, limit=limit, poll_every=0.01)


async def test_every_task_is_followed_to_its_end() -> None:
    ended: list[Outcome] = []
    async with LocalDialect().serving() as server:
        outcomes = await open_loop.run(load(server), [0.0, 0.01, 0.02], ended.append)
    assert [one.status for one in outcomes] == ["Ready"] * 3
    assert [one.polls for one in outcomes] == [2, 2, 2]
    assert all(one.started and one.ended and one.total for one in outcomes)
    assert {id(one) for one in ended} == {id(one) for one in outcomes}


async def test_arrivals_never_wait_for_answers() -> None:
    server = LocalDialect()
    server.answer_after = 0.3
    async with server.serving():
        await open_loop.run(load(server), [0.0, 0.02, 0.04, 0.06], lambda _: None)
    # One after the other they would span 0.9 s.
    assert max(server.submitted) - min(server.submitted) < 0.3


async def test_refused_and_lost_tasks_are_told_apart() -> None:
    async with LocalDialect(refuse_every=2, forgotten=frozenset({3})).serving() as server:
        first, second, third = await open_loop.run(load(server, limit=0.2), [0.0, 0.1, 0.2], lambda _: None)
    assert first.status == "Ready"
    assert (second.accepted, second.refusal, second.lost) == (False, "HTTP 429", False)
    assert third.lost


async def test_a_server_that_is_not_there_refuses(unused_tcp_port: int) -> None:
    nowhere = Load(f"http://127.0.0.1:{unused_tcp_port}", "key", "gen-any", {}, limit=1, poll_every=0.01)
    [outcome] = await open_loop.run(nowhere, [0.0], lambda _: None)
    assert outcome.refusal == "ConnectError"
    assert outcome.total == pytest.approx(None)
