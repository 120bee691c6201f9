"""What the autoscaling policy reads of a queue, through the lives of its tasks."""

from __future__ import annotations

from threading import Thread
from types import SimpleNamespace

import pytest
from support.payloads import RESULT
from support.tasks import ALL, QUEUE, new_task

from serve_app.cluster.autoscaling import Load, WorkPolicy
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status


@pytest.fixture
def policy(store: TaskStore) -> WorkPolicy:
    return WorkPolicy(QUEUE, 30, store.prefix, "", None)


async def read(policy: WorkPolicy, store: TaskStore) -> Load:
    await policy.read(store.redis)
    return policy._forecast.load


async def test_work_counts_from_submission_to_its_end_however_it_ends(store: TaskStore, policy: WorkPolicy) -> None:
    assert await read(policy, store) == Load()
    tasks = [new_task(work=work) for work in (4.0, 1.5, 2.25, 8.0)]
    for task in tasks:
        await store.submit(task)
    assert await read(policy, store) == Load(4, 15.75, 15.75, 4)
    first, second = await store.lease(QUEUE, 2, ALL)
    assert (await read(policy, store)).unfinished == 15.75
    await store.complete(QUEUE, first.id, first.attempt, Status.READY, result=RESULT, device_s=8.0)
    await store.release(QUEUE, second.id, second.attempt)
    assert await read(policy, store) == Load(3, 11.75, 15.75, 4, unit_s=2.0, device_s=8.0)
    for task in tasks[1:]:
        await store.cancel(task.id, "p")
    assert await read(policy, store) == Load(0, 0.0, 15.75, 4, unit_s=2.0, device_s=8.0)


async def test_nothing_is_handed_out_before_the_first_replica_is_there(store: TaskStore, policy: WorkPolicy) -> None:
    await store.submit(new_task())
    await read(policy, store)
    config = SimpleNamespace(target_ongoing_requests=8)
    context = SimpleNamespace(current_num_replicas=0, target_num_replicas=0, config=config)
    policy._thread = Thread()  # which would read the store of a service
    assert policy(context)[0] > 0
    await read(policy, store)
    assert await store.lease(QUEUE, 1, ALL) == []
    context.current_num_replicas = 1
    policy(context)
    await read(policy, store)
    assert len(await store.lease(QUEUE, 1, ALL)) == 1
