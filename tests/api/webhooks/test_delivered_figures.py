"""What came of deliveries, and how far they are behind."""

from __future__ import annotations

from support.deliveries import DOWN, OK, claimed, one_ended, outbox_of, time_passes

from serve_app.tasks.store import TaskStore


async def test_each_outcome_is_counted(store: TaskStore) -> None:
    outbox = outbox_of(store, schedule_s=(60,))
    task_id = await one_ended(store)
    await outbox.record(await claimed(outbox), DOWN, "retry", wait_s=60)
    assert (await outbox.delivered())[0] == {"delivered": 0, "failed": 0, "put_off": 1}
    await time_passes(outbox)
    await outbox.record(await claimed(outbox), DOWN, "failed")
    counts, delay = await outbox.delivered()
    assert (counts["failed"], delay.count) == (1, 0)
    await outbox.replay(task_id)
    await outbox.record(await claimed(outbox), OK, "delivered")
    counts, delay = await outbox.delivered()
    assert counts == {"delivered": 1, "failed": 1, "put_off": 1}
    assert delay.count == 1


async def test_a_delay_is_from_when_the_webhook_was_due(store: TaskStore) -> None:
    outbox = outbox_of(store)
    task_id = await one_ended(store)
    await store.redis.hincrby(f"{store.prefix}delivery:{task_id}", "since", -90_000)  # type: ignore[misc]
    await outbox.record(await claimed(outbox), OK, "delivered")
    _, delay = await outbox.delivered()
    assert delay.sum >= 90
    assert dict(delay.buckets)[300.0] - dict(delay.buckets)[60.0] == 1


async def test_the_backlog_is_what_is_on_its_way(store: TaskStore) -> None:
    outbox = outbox_of(store)
    assert await outbox.backlog() == (0, 0)
    first, _ = await one_ended(store), await one_ended(store)
    await store.redis.zincrby(f"{store.prefix}pending", -90_000, first)
    pending, oldest_s = await outbox.backlog()
    assert pending == 2
    assert 90 <= oldest_s < 120
    for claim in await outbox.claim(2):
        assert (await outbox.backlog())[0] >= 1, "what is being sent is on its way"
        await outbox.record(claim, OK, "delivered")
    assert await outbox.backlog() == (0, 0)
