"""Who is woken for a task: one dispatcher that has room, if any has."""

from __future__ import annotations

from contextlib import AsyncExitStack

from redis.asyncio.client import PubSub
from support.payloads import RESULT
from support.tasks import ALL, QUEUE, new_task

from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status


async def listen(store: TaskStore, stack: AsyncExitStack, dispatcher: str) -> PubSub:
    pubsub = await stack.enter_async_context(store.redis.pubsub(ignore_subscribe_messages=True))
    await pubsub.subscribe(store.channel(f"wake:{dispatcher}"))
    await pubsub.get_message(timeout=1)
    return pubsub


async def calls(pubsub: PubSub) -> list[str]:
    """The queues that it was called for."""
    queues: list[str] = []
    while message := await pubsub.get_message(timeout=0.05):
        queues.append(message["data"])
    return queues


async def test_a_task_wakes_one_dispatcher_that_lives_and_has_room_and_the_next_where_it_has_none(
    store: TaskStore,
) -> None:
    async with AsyncExitStack() as stack:
        first, second = [await listen(store, stack, name) for name in ("first", "second")]
        for name in ("gone", "first", "second"):
            assert await store.lease(QUEUE, 2, ALL, name) == []
        await store.submit(new_task())
        assert (await calls(first), await calls(second)) == ([QUEUE], [])
        assert await store.lease(QUEUE, 0, ALL, "first") == []  # it has no room any more
        assert (await calls(first), await calls(second)) == ([], [QUEUE])
        [lease] = await store.lease(QUEUE, 1, 1, "second")  # and has none left
        await store.submit(new_task())
        assert (await calls(first), await calls(second)) == ([], [])
        assert await store.lease(QUEUE, 1, 1, "first") == []  # as many are leased as may be
        await store.complete(QUEUE, lease.id, lease.attempt, Status.READY, result=RESULT)
        assert (await calls(first), await calls(second)) == ([QUEUE], [])
