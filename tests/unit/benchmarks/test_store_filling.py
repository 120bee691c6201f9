from __future__ import annotations

from typing import Any, cast

import pytest
from redis.asyncio import Redis
from support.tasks import LANE, new_task

from benchmarks.store_filling import LIMITS, Call, Misfilled, Notebook, check
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status

LEASE_OF_2 = Call("lease", (1, "gen:", "gen:", LANE, "call", 2, 10))


async def test_a_store_without_a_server_notes_what_it_would_send() -> None:
    notebook = Notebook(now=1_764_000_000.5)
    store = TaskStore(cast(Redis, notebook), "gen:", LIMITS)
    task = new_task()
    assert (await store.submit(task)).created
    assert await store.lease(LANE, 2, 10) == []
    assert await store.advance(LANE, task.id, 1, Status.GENERATING)
    assert await store.complete(LANE, task.id, 1, Status.READY)
    assert [call.script for call in notebook.calls] == ["submit", "lease", "advance", "complete"]
    assert all(call.arguments[:4] == (1, "gen:", "gen:", LANE) for call in notebook.calls)
    check(LEASE_OF_2, [["a"], ["b"]])
    with pytest.raises(Misfilled):
        check(notebook.calls[1], [["a"]])


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (Call("submit", ()), [1, "{}", 7]),
        (Call("advance", ()), 1),
        (Call("complete", ()), 1),
        (LEASE_OF_2, [["a", 1], ["b", 1]]),
    ],
)
def test_a_step_that_was_done_passes(call: Call, answer: Any) -> None:
    check(call, answer)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (Call("submit", ()), [0, "queue", 10]),
        (Call("submit", ()), [2, "{}"]),
        (Call("advance", ()), 0),
        (Call("complete", ()), 2),
        (LEASE_OF_2, []),
        (LEASE_OF_2, [["a", 1]]),
    ],
)
def test_a_step_that_was_not_done_is_told(call: Call, answer: Any) -> None:
    with pytest.raises(Misfilled, match=call.script):
        check(call, answer)
