"""Whether a dispatcher is at work, as those that are say themselves."""

from __future__ import annotations

from serve_app.tasks.store import TaskStore


async def test_a_dispatcher_is_there_once_it_says_so_and_not_for_ever(store: TaskStore) -> None:
    assert not await store.has_dispatcher()
    await store.dispatcher_is_here()
    assert await store.has_dispatcher()
    left_ms = await store.redis.pttl(f"{store.prefix}dispatcher")
    assert 0 < left_ms <= 5000
