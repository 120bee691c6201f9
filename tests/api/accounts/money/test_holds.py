"""Holds, settlements and spending windows of tasks. `test_money_machine.py` checks any sequence of steps."""

from __future__ import annotations

import asyncio
import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from support.ledger import FUNDS, assert_books_balance, complete, limit, priced_task, submit
from support.promises import promise
from support.redis_dump import dump_keys
from support.tasks import QUEUE, get_task, lease_one, make_due

import serve_app.tasks
from serve_app.accounts.credits import Balance, CreditStore
from serve_app.accounts.projects import ProjectStore
from serve_app.accounts.windows import WINDOWS, compute_windows, day_number, midnight
from serve_app.storage.scripts import PRELUDE, concat_scripts
from serve_app.tasks import store as task_store
from serve_app.tasks.limits import Limits
from serve_app.tasks.rejections import (
    IdempotencyMismatch,
    InsufficientCredits,
    QueueFull,
    RateLimited,
    SpendingLimitReached,
    SubmitExpired,
    TaskRejected,
    TooManyActive,
)
from serve_app.tasks.scripts import ReleaseCause
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import NewTask, Status


async def test_large_amounts_are_exact(store: TaskStore, credits: CreditStore) -> None:
    much = 10**15 - 1
    await credits.grant("rich", "first", much, by="test")
    await submit(store, 10**15 - 1, organization="rich")
    await complete(store, cost=much - 3)
    assert await assert_books_balance(credits, "rich") == Balance(3, 0, much - 3, much)


async def precheck(store: TaskStore, task: NewTask) -> str | None:
    return await store.precheck(
        queue=task.queue,
        project=task.project,
        organization=task.organization,
        price=task.price,
        key_id=task.key_id,
        task_id=task.id,
        idempotency_key=task.idempotency_key,
        body_hash=task.body_hash,
    )


RATE_LIMITS = Limits(requests_per_s=0.001, burst=2, max_active=1000)


@pytest.mark.parametrize(
    ("kind", "limits", "changes"),
    [
        (InsufficientCredits, RATE_LIMITS, {"price": FUNDS + 1}),
        (SpendingLimitReached, RATE_LIMITS, {"price": 5000}),
        (TooManyActive, Limits(requests_per_s=0.001, max_active=1), {"price": 1}),
        (QueueFull, Limits(requests_per_s=0.001, max_queued=1), {"price": 1}),
        (RateLimited, Limits(requests_per_s=0.001, burst=1), {"price": 1}),
        (IdempotencyMismatch, RATE_LIMITS, {"price": 1, "idempotency_key": "once", "body_hash": "another"}),
    ],
)
async def test_refused_submission_writes_nothing(
    store: TaskStore,
    credits: CreditStore,
    projects: ProjectStore,
    kind: type[TaskRejected],
    limits: Limits,
    changes: dict[str, Any],
) -> None:
    if kind is SpendingLimitReached:
        await limit(projects, "month", 5099)
    # With a slow rate the traces of the first submission last, and refusals must not touch them.
    slow = TaskStore(store.redis, store.prefix, Limits(requests_per_s=0.001))
    await submit(slow, 100, key_id="k", idempotency_key="once", body_hash="b")
    before = await dump_keys(store.redis, store.prefix)
    refusing = TaskStore(store.redis, store.prefix, limits)
    for idempotency_key in ("", "fresh"):
        task: dict[str, Any] = {"key_id": "k", "idempotency_key": idempotency_key, "body_hash": "b"} | changes
        with pytest.raises(kind) as by_precheck:
            await precheck(refusing, priced_task(**task))
        with pytest.raises(kind) as refused:
            await refusing.submit(priced_task(**task))
        if kind is not RateLimited:  # its wait changes every millisecond
            assert by_precheck.value.args == refused.value.args
    assert await dump_keys(store.redis, store.prefix) == before


async def test_precheck_claims_the_key_and_returns_earlier_replies(store: TaskStore, credits: CreditStore) -> None:
    task = priced_task(FUNDS, idempotency_key="once", body_hash="b")
    before = await dump_keys(store.redis, store.prefix)
    assert await precheck(store, task) is None
    after = await dump_keys(store.redis, store.prefix)
    after.pop(f"{store.prefix}memory", None)  # a cached reading of the server's memory
    assert [key for key in after if key not in before] == [
        key for key in after if key.startswith(f"{store.prefix}idempotency:")
    ]
    await store.submit(task)
    again = priced_task(FUNDS, idempotency_key="once", body_hash="b")
    assert await precheck(store, again) == (await store.submit(again)).reply == task.reply


async def test_expired_precheck_claims_no_key(
    store: TaskStore, credits: CreditStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = priced_task(FUNDS, idempotency_key="once", body_hash="b")
    with monkeypatch.context() as patches:
        patches.setattr(task_store, "SUBMIT_S", -60)
        with pytest.raises(SubmitExpired):
            await precheck(store, task)
    assert await precheck(store, priced_task(FUNDS, idempotency_key="once", body_hash="b")) is None


async def test_spending_limit_is_checked_before_credits(store: TaskStore, projects: ProjectStore) -> None:
    await limit(projects, "day", 100)
    with pytest.raises(SpendingLimitReached):
        await store.submit(priced_task(101))
    with pytest.raises(InsufficientCredits):
        await store.submit(priced_task(100))


@promise("Decided: money, accounts", "Each settles exactly once.")
async def test_parallel_ends_settle_once(store: TaskStore, credits: CreditStore) -> None:
    task = await submit(store, 900)
    lease = await lease_one(store)
    await make_due(store, f"deadlines:{QUEUE}")
    await make_due(store, f"leased:{QUEUE}")
    await asyncio.gather(
        store.complete(QUEUE, task.id, lease.attempt, Status.READY, cost=100),
        store.end_overdue(QUEUE),
        store.cancel(task.id, "p"),
        store.reap(QUEUE),
        store.release(QUEUE, task.id, lease.attempt, ReleaseCause.CRASH_ALONE),
    )
    cost = (await get_task(store, task.id)).cost or 0
    assert await assert_books_balance(credits) == Balance(FUNDS - cost, 0, cost, FUNDS)


async def read_counters(store: TaskStore) -> dict[str, int]:
    """Returns the stored windows of the project."""
    start = f"{store.prefix}spent:p:"
    counters = {name: await store.redis.get(name) async for name in store.redis.scan_iter(f"{start}*", count=10_000)}
    return {name.removeprefix(start): int(amount or 0) for name, amount in counters.items()}


async def test_return_frees_the_windows_of_the_submission(store: TaskStore, credits: CreditStore) -> None:
    task = await submit(store, 900)
    now = await read_counters(store)
    assert list(now.values()) == [900, 900, 900]
    # Another day, week and month, which are still stored.
    submission = (await credits.spending("p"))[0].since - timedelta(days=35)
    noon = round(midnight(submission).timestamp() + 43_200) * 1000
    await store.redis.hset(f"{store.prefix}task:{task.id}", "created", noon)  # type: ignore[misc]
    then = [f"{name}:{day_number(first)}" for name, (first, _) in compute_windows(submission).items()]
    for name in then:
        await store.redis.set(f"{store.prefix}spent:p:{name}", 1000)
    await store.cancel(task.id, "p")
    assert await read_counters(store) == now | dict.fromkeys(then, 100)


async def test_windows_expire_after_their_end_and_get_no_return(store: TaskStore, credits: CreditStore) -> None:
    task = await submit(store, 900)
    names = await read_counters(store)
    assert {name.partition(":")[0] for name in names} == set(WINDOWS)
    ends: dict[str, float] = {each.window: midnight(each.until).timestamp() for each in await credits.spending("p")}
    for name in names:
        expires = await store.redis.expiretime(f"{store.prefix}spent:p:{name}")
        assert expires == ends[name.partition(":")[0]] + 40 * 86_400
        await store.redis.delete(f"{store.prefix}spent:p:{name}")
    await store.cancel(task.id, "p")
    assert await read_counters(store) == {}
    assert (await assert_books_balance(credits)).balance == FUNDS


MONEY_SCRIPT = Path(serve_app.tasks.__file__).with_name("money.lua")
WINDOWS_SCRIPT = """
local out = {}
for n, ms in ipairs(cjson.decode(ARGV[3])) do out[n] = compute_windows(ms) end
return cjson.encode(out)
"""
DAY_MS = 86_400_000


async def windows_in_lua(redis: Redis, times_ms: list[int]) -> list[list[list[Any]]]:
    text = concat_scripts(PRELUDE, MONEY_SCRIPT) + WINDOWS_SCRIPT
    return json.loads(await redis.eval(text, 0, "unused:", "model", json.dumps(times_ms)))  # type: ignore[misc]


def expected_windows(day: date) -> list[list[Any]]:
    return [
        [name, day_number(first), day_number(following)] for name, (first, following) in compute_windows(day).items()
    ]


async def test_windows_in_lua_and_python_are_equal(redis: Redis) -> None:
    years = [date(year, 1, 1) for year in (1970, 1972, 2000, 2025, 2028, 2100, 2400)]
    firsts = [date(year, month, 1) for year in range(1970, 2171) for month in range(1, 13)]
    days = [year + timedelta(days=n) for year in years for n in range(367)]
    days += firsts + [first - timedelta(days=1) for first in firsts[1:]]
    # 997 is a prime: the sweep meets every weekday and every part of a month.
    days += [date(1970, 1, 1) + timedelta(days=n) for n in range(0, 2_900_000, 997)]
    for within in (0, DAY_MS - 1):
        results = await windows_in_lua(redis, [day_number(day) * DAY_MS + within for day in days])
        for day, windows in zip(days, results, strict=True):
            assert windows == expected_windows(day), (day, within)
