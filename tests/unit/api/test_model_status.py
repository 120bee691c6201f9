"""State and wait of models."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from deployments.contract.counts import ReplicaCounts
from serve_app.api.model_status import ModelStatus, ModelStatusReader
from serve_app.tasks.store import TaskStore
from serve_app.tasks.windows import WindowReader

FIRST, SECOND = "first", "second"


@pytest.mark.parametrize(
    ("replicas", "state"),
    [
        ({FIRST: ReplicaCounts({"RUNNING": 1, "STARTING": 2}, target=3)}, "ready"),
        ({FIRST: ReplicaCounts({"RUNNING": 0, "STARTING": 2}, target=2)}, "starting"),
        ({FIRST: ReplicaCounts({"RECOVERING": 1}, target=1)}, "starting"),
        ({FIRST: ReplicaCounts({"STOPPING": 1}, target=0)}, "scaled to zero"),
        ({FIRST: ReplicaCounts({}, target=0)}, "scaled to zero"),
        ({FIRST: ReplicaCounts({}, target=1)}, "no replica"),
        ({}, None),
    ],
)
async def test_state_follows_from_replicas(
    store: TaskStore, replicas: dict[str, ReplicaCounts], state: str | None
) -> None:
    async def report_replicas() -> dict[str, ReplicaCounts]:
        return replicas

    states = ModelStatusReader(store, WindowReader(store), [FIRST, SECOND], report_replicas)
    assert await states.worst_status([FIRST]) == ModelStatus(state, None)  # type: ignore[arg-type]


async def test_models_are_listed_without_serve_controller(store: TaskStore) -> None:
    async def away() -> dict[str, ReplicaCounts]:
        raise ConnectionError

    assert await ModelStatusReader(store, WindowReader(store), [SECOND], away).worst_status([SECOND]) == ModelStatus(
        None, None
    )


async def test_worst_state_of_several_queues(store: TaskStore) -> None:
    async def report_replicas() -> dict[str, ReplicaCounts]:
        return {FIRST: ReplicaCounts({"RUNNING": 1}, target=1), SECOND: ReplicaCounts({"STOPPING": 1}, target=1)}

    states = ModelStatusReader(store, WindowReader(store), [FIRST, SECOND], report_replicas)
    assert (await states.worst_status([SECOND])).state == "no replica"
    assert (await states.worst_status([FIRST, SECOND])).state == "no replica"
    assert (await states.worst_status([FIRST])).state == "ready"


async def test_queue_without_ended_tasks_has_no_wait(redis: Redis, store: TaskStore) -> None:
    async def report_replicas() -> dict[str, ReplicaCounts]:
        return {}

    buckets = {"work:1000": 2, "work:sum": 3000}
    await redis.hset(f"{store.prefix}timings:{FIRST}", mapping=buckets)  # type: ignore[misc]
    await redis.zadd(f"{store.prefix}queued:{FIRST}", {"a": 1, "b": 2, "c": 3, "d": 4})
    await redis.zadd(f"{store.prefix}leased:{FIRST}", {"e": 1, "f": 2})
    states = ModelStatusReader(store, WindowReader(store), [FIRST, SECOND], report_replicas)
    assert await states.worst_status([FIRST]) == ModelStatus(None, 3.0)
    assert await states.worst_status([SECOND]) == ModelStatus(None, None)
    assert await states.worst_status([SECOND, FIRST]) == ModelStatus(None, 3.0)
