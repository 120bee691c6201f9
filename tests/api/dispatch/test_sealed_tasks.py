"""Tasks in clear, sealed, and sealed with a lost key, in one store."""

from __future__ import annotations

import pytest
from support.dispatchers import PRICE, Scene
from support.tasks import new_task

from serve_app.accounts.credits import CreditStore
from serve_app.encryption import AtRest, new_key
from serve_app.tasks.reads import UNREADABLE
from serve_app.tasks.rejections import ReplyUnreadable
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status

OLD, NEW, LOST = new_key(), new_key(), new_key()


def reading(store: TaskStore, *keys: str) -> TaskStore:
    """Returns a store of the same tasks with other keys."""
    return TaskStore(store.redis, store.prefix, store.limits, at_rest=AtRest(keys, sealing=bool(keys)))


async def submit_with_keys(scene: Scene, *keys: str) -> str:
    """Submits a task with these keys. Returns its id."""
    now, scene.store = scene.store, reading(scene.store, *keys)
    [task_id] = await scene.submit()
    scene.store = now
    return task_id


async def test_only_tasks_of_a_lost_key_end_as_error(scene: Scene) -> None:
    scene.store = reading(scene.store, NEW, OLD)
    ids = [await submit_with_keys(scene, *keys) for keys in ((), (OLD,), (LOST,), (NEW, OLD))]
    scene.dispatcher()
    tasks = await scene.wait_for_end(ids)
    assert [task.status for task in tasks] == [Status.READY, Status.READY, Status.ERROR, Status.READY]
    assert {task.attempt for task in tasks} == {1}
    assert (tasks[2].details, tasks[2].crashes) == ({"error": UNREADABLE}, 0)
    old_task = await reading(scene.store, NEW).reads.get(ids[1])
    assert old_task is not None
    assert (old_task.status, old_task.payload, old_task.result is None) == (Status.READY, "", False)
    balance = await CreditStore(scene.store.redis, scene.store.prefix).balance("default")
    assert (balance.held, balance.spent) == (0, 3 * PRICE)


async def test_result_whose_key_is_lost_is_an_error(scene: Scene) -> None:
    scene.store = reading(scene.store, OLD)
    scene.dispatcher()
    [task] = await scene.wait_for_end(await scene.submit())
    assert (task.status, task.result and task.result.prompt) == (Status.READY, "a star")
    stored_task = await reading(scene.store, NEW).reads.get(task.id)
    assert stored_task is not None
    assert (stored_task.status, stored_task.result, stored_task.details) == (Status.ERROR, None, {"error": UNREADABLE})
    [listed], _ = await reading(scene.store, NEW).reads.list_tasks("p", limit=10)
    assert listed == stored_task


async def test_repeated_submission_with_unreadable_reply_is_refused(store: TaskStore) -> None:
    task = new_task(idempotency_key="once", body_hash="same")
    again = new_task(idempotency_key="once", body_hash="same")
    await reading(store, OLD).submit(task)
    assert (await reading(store, NEW, OLD).submit(again)).reply == task.reply
    with pytest.raises(ReplyUnreadable):
        await reading(store, NEW).submit(again)
    assert await store.reads.get(again.id) is None
