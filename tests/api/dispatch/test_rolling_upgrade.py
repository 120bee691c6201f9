"""Two releases over one store, as while one takes the other's place."""

from __future__ import annotations

import json

from support.lanes import PRICE, Scene
from support.tasks import LANE, new_task

from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import VERSION, Status


async def test_a_job_of_a_later_release_goes_back_untouched(scene: Scene) -> None:
    lane = scene.dispatcher(headroom=1)
    newer = new_task(job=json.dumps({"v": VERSION + 1, "scene": "of another shape"}), price=PRICE)
    await scene.store.submit(newer)
    lane.wake.set()
    await scene.until(lambda: _was_given_back(scene.store, newer.id))
    task = await scene.task(newer.id)
    assert (task.status, task.strikes, task.job) == (Status.PENDING, 0, newer.job)


async def _was_given_back(store: TaskStore, task_id: str) -> bool:
    counts = await store.counts(LANE)
    task = await store.get(task_id)
    return task is not None and task.attempt > 0 and counts.get("put_back", 0) > 0
