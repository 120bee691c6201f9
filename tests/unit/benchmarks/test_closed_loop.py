from __future__ import annotations

from support.local_dialect import LocalDialect

from benchmarks import closed_loop


async def test_it_sends_as_long_as_it_should_and_counts_every_answer() -> None:
    async with LocalDialect(refuse_every=3).serving() as server:
        request = closed_loop.post(server.base_url, "/v1/gen-any", "key", {"prompt": "a"})
        driven = await closed_loop.drive(server.base_url, [request], concurrency=4, seconds=0.2)
    assert len(server.submitted) == len(driven.latencies) + driven.failed
    assert driven.failed == len(server.submitted) // 3
    assert 0.2 <= driven.seconds < 1
    assert driven.rate > 10


async def test_requests_go_round() -> None:
    async with LocalDialect().serving() as server:
        polls = [closed_loop.get(server.base_url, f"/v1/get_result?id={task}") for task in range(3)]
        driven = await closed_loop.drive(server.base_url, polls, concurrency=1, seconds=0.1)
    assert driven.failed == 0
    assert len(driven.latencies) > 3
