"""The queue of the capacity planner gives turns as the task store does."""

from __future__ import annotations

import random

import pytest
from support.payloads import RESULT
from support.tasks import ALL, QUEUE, new_task

from serve_app.planning.simulation import FairQueue, SimulatedTask
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status


@pytest.mark.parametrize("seed", range(4))
async def test_turns_are_those_of_the_store(store: TaskStore, seed: int) -> None:
    chance, queue = random.Random(seed), FairQueue()
    names = dict[SimulatedTask, str]()
    for number in range(100):
        if chance.random() < 0.6 or not len(queue):
            tenant, size = chance.choice("abc"), chance.choice((0.25, 1.0, 3.0))
            # Of two whose turn comes at the same time, the store takes the one whose id is less.
            await store.submit(new_task(id=f"{number:04}", project=tenant, work=4 * size))
            task = SimulatedTask(0.0, size, 4, tenant)
            names[task] = f"{number:04}"
            queue.push(task)
        else:
            [lease] = await store.lease(QUEUE, 1, ALL)
            assert lease.id == names[queue.pop()]
            await store.complete(QUEUE, lease.id, lease.attempt, Status.READY, result=RESULT)
