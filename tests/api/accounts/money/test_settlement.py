"""Credits are settled or given back, once, in the step that ends a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from support.books import (
    FUNDS,
    assert_books_balance,
    completed,
    spent,
    submitted,
    usage,
)
from support.tasks import LANE, lease_one, make_due

from serve_app.accounts.credits import Balance, Credits
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import NewTask, Status


@pytest.mark.parametrize(
    ("cost", "charged"),
    [(None, 900), (900, 900), (0, 0), pytest.param(5000, 900, id="never more than was held")],
)
async def test_a_finished_task_costs_at_most_its_price(
    store: TaskStore, credits: Credits, cost: int | None, charged: int
) -> None:
    task = await submitted(store, 900)
    await completed(store, cost=cost)
    assert await assert_books_balance(credits) == Balance(FUNDS - charged, 0, charged, FUNDS)
    assert await spent(credits) == {charged}
    found = await store.get(task.id)
    assert found is not None
    assert found.cost == charged


async def end_by_error(store: TaskStore, task: NewTask) -> None:
    await completed(store, Status.ERROR, cost=400)


async def end_by_moderation_of_the_request(store: TaskStore, task: NewTask) -> None:
    await completed(store, Status.REQUEST_MODERATED)


async def end_by_moderation_of_the_content(store: TaskStore, task: NewTask) -> None:
    await completed(store, Status.CONTENT_MODERATED, cost=400)


async def end_by_cancelling_while_it_waits(store: TaskStore, task: NewTask) -> None:
    for _ in range(2):
        assert await store.cancel(task.id, task.project) == 1


async def end_by_cancelling_at_work(store: TaskStore, task: NewTask) -> None:
    lease = await lease_one(store)
    assert await store.cancel(task.id, task.project) == 1
    assert not await store.complete(LANE, task.id, lease.attempt, Status.READY)


async def end_by_expiry_while_it_waits(store: TaskStore, task: NewTask) -> None:
    await make_due(store, f"deadlines:{LANE}")
    assert await store.end_overdue(LANE) == 1
    assert await store.end_overdue(LANE) == 0


async def end_by_expiry_at_work(store: TaskStore, task: NewTask) -> None:
    lease = await lease_one(store)
    await make_due(store, f"deadlines:{LANE}")
    assert await store.end_overdue(LANE) == 1
    assert not await store.complete(LANE, task.id, lease.attempt, Status.READY)


async def end_by_the_last_strike(store: TaskStore, task: NewTask) -> None:
    codes: list[int] = []
    for _ in range(store.limits.max_strikes):
        lease = await lease_one(store)
        codes.append(await store.release(LANE, task.id, lease.attempt, strike=True, alone=lease.isolated))
    assert codes == [1, 1, 2]


async def end_by_the_reaper(store: TaskStore, task: NewTask) -> None:
    for _ in range(store.limits.max_losses):
        lease = await lease_one(store)
        await store.advance(LANE, lease.id, lease.attempt, Status.GENERATING)
        await make_due(store, f"leased:{LANE}")
        assert await store.reap(LANE) == 1


UNFINISHED = [
    end_by_error,
    end_by_moderation_of_the_request,
    end_by_moderation_of_the_content,
    end_by_cancelling_while_it_waits,
    end_by_cancelling_at_work,
    end_by_expiry_while_it_waits,
    end_by_expiry_at_work,
    end_by_the_last_strike,
    end_by_the_reaper,
]


@pytest.mark.parametrize("end", UNFINISHED, ids=lambda end: end.__name__)
async def test_a_task_that_brings_nothing_costs_nothing(
    store: TaskStore, credits: Credits, end: Callable[[TaskStore, NewTask], Awaitable[None]]
) -> None:
    task = await submitted(store, 900)
    await end(store, task)
    found = await store.get(task.id)
    assert found is not None
    assert found.status in {Status.ERROR, Status.REQUEST_MODERATED, Status.CONTENT_MODERATED}
    assert found.cost is None
    assert await assert_books_balance(credits) == Balance(FUNDS, 0, 0, FUNDS)
    assert await spent(credits) == {0}
    entries, _ = await credits.ledger("acme", 10)
    assert [(entry.kind, entry.amount) for entry in entries] == [("return", 900), ("hold", -900), ("grant", FUNDS)]
    assert entries[0].about["task"] == task.id
    assert await usage(credits) == []


async def test_a_repeated_outcome_settles_once(store: TaskStore, credits: Credits) -> None:
    task = await submitted(store, 900)
    lease = await lease_one(store)
    await asyncio.gather(
        *(store.complete(LANE, task.id, lease.attempt, Status.READY, cost=650) for _ in range(5)),
    )
    assert await store.complete(LANE, task.id, lease.attempt, Status.ERROR, cost=0)
    assert await store.cancel(task.id, "p") == 2
    assert await assert_books_balance(credits) == Balance(FUNDS - 650, 0, 650, FUNDS)
    [report] = await usage(credits)
    assert (report.tasks, report.cost) == (1, 650)


async def test_every_end_at_once_settles_once(store: TaskStore, credits: Credits) -> None:
    task = await submitted(store, 900)
    lease = await lease_one(store)
    await make_due(store, f"deadlines:{LANE}")
    await make_due(store, f"leased:{LANE}")
    await asyncio.gather(
        store.complete(LANE, task.id, lease.attempt, Status.READY, cost=100),
        store.end_overdue(LANE),
        store.cancel(task.id, "p"),
        store.reap(LANE),
        store.release(LANE, task.id, lease.attempt, strike=True, alone=True),
    )
    found = await store.get(task.id)
    assert found is not None
    cost = found.cost or 0
    assert await assert_books_balance(credits) == Balance(FUNDS - cost, 0, cost, FUNDS)
