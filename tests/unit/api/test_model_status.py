from __future__ import annotations

import pytest
from redis.asyncio import Redis

from deployments.contract.counts import ReplicaCounts
from serve_app.api.model_status import ModelStatus, ModelStatusReader
from serve_app.tasks.store import TaskStore
from serve_app.tasks.windows import WindowReader

FIRST, SECOND = "first", "second"


def reader(store: TaskStore, replicas: dict[str, ReplicaCounts] | None) -> ModelStatusReader:
    """Returns a reader; None stands for a Serve controller that does not answer."""

    async def report_replicas() -> dict[str, ReplicaCounts]:
        if replicas is None:
            raise ConnectionError
        return replicas

    return ModelStatusReader(store, WindowReader(store), [FIRST, SECOND], report_replicas)


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
        (None, None),
    ],
)
async def test_state_follows_from_replicas(
    store: TaskStore, replicas: dict[str, ReplicaCounts] | None, state: str | None
) -> None:
    assert await reader(store, replicas).worst_status([FIRST]) == ModelStatus(state, None)  # type: ignore[arg-type]


async def test_state_of_several_queues_is_the_worst(store: TaskStore) -> None:
    replicas = {FIRST: ReplicaCounts({"RUNNING": 1}, target=1), SECOND: ReplicaCounts({"STOPPING": 1}, target=1)}
    states = reader(store, replicas)
    assert (await states.worst_status([SECOND])).state == "no replica"
    assert (await states.worst_status([FIRST, SECOND])).state == "no replica"
    assert (await states.worst_status([FIRST])).state == "ready"


async def test_queue_without_ended_tasks_has_no_wait(redis: Redis, store: TaskStore) -> None:
    buckets = {"work:1000": 2, "work:sum": 3000}
    await redis.hset(f"{store.prefix}timings:{FIRST}", mapping=buckets)  # type: ignore[misc]
    await redis.zadd(f"{store.prefix}queued:{FIRST}", {"a": 1, "b": 2, "c": 3, "d": 4})
    await redis.zadd(f"{store.prefix}leased:{FIRST}", {"e": 1, "f": 2})
    states = reader(store, {})
    assert await states.worst_status([FIRST]) == ModelStatus(None, 3.0)
    assert await states.worst_status([SECOND]) == ModelStatus(None, None)
    assert await states.worst_status([SECOND, FIRST]) == ModelStatus(None, 3.0)
