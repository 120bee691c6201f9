"""Credits are held in the step that accepts a task, or it is refused and nothing is written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.books import FUNDS, assert_books_balance, completed, limit, priced_task, submitted
from support.redis_contents import contents

from serve_app.accounts.credits import Balance, Credits
from serve_app.accounts.projects import ProjectStore
from serve_app.tasks.limits import (
    IdempotencyMismatch,
    InsufficientCredits,
    Limits,
    QueueFull,
    Refused,
    SpendingLimitReached,
    TooFast,
    TooManyActive,
)
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import NewTask


async def test_amounts_are_exact_beyond_what_floats_of_seven_digits_tell(store: TaskStore, credits: Credits) -> None:
    much = 10**15 - 1
    await credits.grant("rich", "first", much, by="test")
    await submitted(store, 10**15 - 1, organization="rich")
    await completed(store, cost=much - 3)
    assert await assert_books_balance(credits, "rich") == Balance(3, 0, much - 3, much)


async def test_a_submission_is_repeated_even_when_there_would_be_too_little_for_another(
    store: TaskStore, credits: Credits
) -> None:
    task = await submitted(store, FUNDS, idempotency_key="once", body_hash="b")
    assert (await store.submit(task)).reply == task.reply
    repeat = await store.submit(priced_task(FUNDS, idempotency_key="once", body_hash="b"))
    assert (repeat.reply, repeat.created) == (task.reply, False)
    assert (await assert_books_balance(credits)).held == FUNDS


async def test_parallel_submissions_with_one_idempotency_key_hold_once(store: TaskStore, credits: Credits) -> None:
    answers = await asyncio.gather(
        *(store.submit(priced_task(900, idempotency_key="once", body_hash="b")) for _ in range(20))
    )
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.reply for answer in answers}) == 1
    assert (await assert_books_balance(credits)).held == 900


async def look(store: TaskStore, task: NewTask) -> str | None:
    return await store.look(
        lane=task.lane,
        project=task.project,
        organization=task.organization,
        price=task.price,
        key_id=task.key_id,
        idempotency_key=task.idempotency_key,
        body_hash=task.body_hash,
    )


PACE = Limits(requests_per_s=0.001, burst=2, max_active=1000)


@pytest.mark.parametrize(
    ("kind", "limits", "changes"),
    [
        (InsufficientCredits, PACE, {"price": FUNDS + 1}),
        (SpendingLimitReached, PACE, {"price": 5000}),
        (TooManyActive, Limits(requests_per_s=0.001, max_active=1), {"price": 1}),
        (QueueFull, Limits(requests_per_s=0.001, max_queued=1), {"price": 1}),
        (TooFast, Limits(requests_per_s=0.001, burst=1), {"price": 1}),
        (IdempotencyMismatch, PACE, {"price": 1, "idempotency_key": "once", "body_hash": "another"}),
    ],
)
async def test_a_refused_submission_writes_nothing(
    store: TaskStore,
    credits: Credits,
    projects: ProjectStore,
    kind: type[Refused],
    limits: Limits,
    changes: dict[str, Any],
) -> None:
    if kind is SpendingLimitReached:
        await limit(projects, "month", 5099)
    # The first submission, with a pace so slow that its traces last: a refusal must not touch them either.
    slow = TaskStore(store.redis, store.prefix, Limits(requests_per_s=0.001))
    await submitted(slow, 100, key_id="k", idempotency_key="once", body_hash="b")
    before = await contents(store.redis, store.prefix)
    refusing = TaskStore(store.redis, store.prefix, limits)
    for idempotency_key in ("", "fresh"):
        task: dict[str, Any] = {"key_id": "k", "idempotency_key": idempotency_key, "body_hash": "b"} | changes
        with pytest.raises(kind) as by_look:
            await look(refusing, priced_task(**task))
        with pytest.raises(kind) as refused:
            await refusing.submit(priced_task(**task))
        if kind is not TooFast:  # what tells of a wait is another after each millisecond
            assert by_look.value.args == refused.value.args
    assert await contents(store.redis, store.prefix) == before


async def test_a_look_at_what_would_be_accepted_writes_nothing_and_knows_what_came_before(
    store: TaskStore, credits: Credits
) -> None:
    task = priced_task(FUNDS, idempotency_key="once", body_hash="b")
    before = await contents(store.redis, store.prefix)
    assert await look(store, task) is None
    assert await contents(store.redis, store.prefix) == before
    await store.submit(task)
    assert await look(store, priced_task(FUNDS, idempotency_key="once", body_hash="b")) == task.reply


async def in_parallel(store: TaskStore, n: int, price: int) -> list[BaseException | None]:
    """What refused each, None for accepted."""

    async def one() -> BaseException | None:
        try:
            await store.submit(priced_task(price))
        except Refused as refused:
            return refused
        return None

    return await asyncio.gather(*(one() for _ in range(n)))


async def test_parallel_submissions_never_exceed_the_balance(store: TaskStore, credits: Credits) -> None:
    await credits.grant("acme", "taken back", 50 * 30 + 29 - FUNDS, by="test")
    outcomes = await in_parallel(store, 200, 30)
    assert outcomes.count(None) == 50
    assert {type(outcome) for outcome in outcomes if outcome} == {InsufficientCredits}
    assert await assert_books_balance(credits) == Balance(29, 1500, 0, 1529)
