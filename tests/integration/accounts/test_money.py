"""Credits are held, settled and given back in the steps that make and end tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import date, timedelta
from typing import Any

import pytest
from priced_tasks import LANE, assert_books_balance, contents, due, lease_one, priced_task
from redis.asyncio import Redis

from serve_app.accounts.credits import MAX_DAYS, Balance, Credits, TooLittle, Usage
from serve_app.accounts.projects import Project, ProjectStore
from serve_app.accounts.windows import WINDOWS, Window, day_number, midnight, windows_of
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
from serve_app.tasks.task import NewTask, Status

PROJECT = Project("p", "acme")
FUNDS = 10_000


@pytest.fixture
def store(redis: Redis, prefix: str) -> TaskStore:
    return TaskStore(redis, prefix, Limits(max_active=1000))


@pytest.fixture
async def credits(redis: Redis, prefix: str) -> Credits:
    credits = Credits(redis, prefix)
    await credits.grant("acme", "first", FUNDS, by="test")
    return credits


@pytest.fixture
def projects(redis: Redis, prefix: str) -> ProjectStore:
    return ProjectStore(redis, prefix)


async def limit(projects: ProjectStore, window: Window, amount: int | None) -> None:
    await projects.change(PROJECT, {f"limit_{window}": amount}, "test")


async def spent(credits: Credits, project: str = "p") -> set[int]:
    """In the present day, week and month: one amount where they agree."""
    return {window.spent for window in await credits.spending(project)}


async def submitted(store: TaskStore, price: int, **changes: Any) -> NewTask:
    task = priced_task(price, **changes)
    assert (await store.submit(task)).created
    return task


async def completed(store: TaskStore, status: Status = Status.READY, cost: int | None = None) -> None:
    lease = await lease_one(store)
    assert await store.complete(LANE, lease.id, lease.attempt, status, cost=cost)


# Submission


async def test_a_submission_holds_its_price(store: TaskStore, credits: Credits) -> None:
    task = await submitted(store, 900, endpoint="gen-fast")
    assert await assert_books_balance(credits) == Balance(FUNDS - 900, 900, 0, FUNDS)
    assert await spent(credits) == {900}
    [held, _], _ = await credits.ledger("acme", 10)
    assert (held.kind, held.amount, held.balance) == ("hold", -900, FUNDS - 900)
    assert held.about == {"task": task.id, "project": "p", "endpoint": "gen-fast"}


async def test_a_task_that_costs_nothing_moves_nothing(store: TaskStore, credits: Credits) -> None:
    await submitted(store, 0, organization="penniless", project="q")
    await completed(store)
    assert await credits.balance("penniless") == Balance(0, 0, 0, 0)
    assert await credits.ledger("penniless", 10) == ([], None)
    assert await spent(credits, "q") == {0}


async def test_the_whole_balance_can_be_held(store: TaskStore, credits: Credits) -> None:
    await submitted(store, FUNDS)
    assert (await assert_books_balance(credits)).balance == 0
    with pytest.raises(InsufficientCredits) as refused:
        await store.submit(priced_task(1))
    assert refused.value.balance == 0


async def test_organizations_do_not_pay_for_each_other(store: TaskStore, credits: Credits) -> None:
    with pytest.raises(InsufficientCredits):
        await store.submit(priced_task(1, organization="other", project="q"))
    await credits.grant("other", "first", 10, by="test")
    await submitted(store, 10, organization="other", project="q")
    assert (await assert_books_balance(credits)).balance == FUNDS
    assert (await assert_books_balance(credits, "other")).held == 10


async def test_amounts_are_exact_beyond_what_floats_of_seven_digits_tell(store: TaskStore, credits: Credits) -> None:
    much = 10**15 - 1
    await credits.grant("rich", "first", much, by="test")
    await submitted(store, 10**15 - 1, organization="rich")
    await completed(store, cost=much - 3)
    assert await assert_books_balance(credits, "rich") == Balance(3, 0, much - 3, much)


# The ends of a task


async def test_what_a_finished_task_did_not_cost_comes_back(store: TaskStore, credits: Credits) -> None:
    task = await submitted(store, 900)
    await completed(store, cost=650)
    assert await assert_books_balance(credits) == Balance(FUNDS - 650, 0, 650, FUNDS)
    assert await spent(credits) == {650}
    found = await store.get(task.id)
    assert found is not None
    assert found.cost == 650
    [settled, *_], _ = await credits.ledger("acme", 10)
    assert (settled.kind, settled.amount, settled.balance) == ("settle", 250, FUNDS - 650)
    assert settled.about == {"task": task.id, "project": "p", "endpoint": "gen-test", "cost": "650"}


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
    assert await store.cancel(task.id, task.project) == 1
    assert await store.cancel(task.id, task.project) == 2


async def end_by_cancelling_at_work(store: TaskStore, task: NewTask) -> None:
    lease = await lease_one(store)
    assert await store.cancel(task.id, task.project) == 1
    assert not await store.complete(LANE, task.id, lease.attempt, Status.READY)


async def end_by_expiry_while_it_waits(store: TaskStore, task: NewTask) -> None:
    await due(store, f"deadlines:{LANE}")
    assert await store.expire(LANE) == 1
    assert await store.expire(LANE) == 0


async def end_by_expiry_at_work(store: TaskStore, task: NewTask) -> None:
    lease = await lease_one(store)
    await due(store, f"deadlines:{LANE}")
    assert await store.expire(LANE) == 1
    assert not await store.complete(LANE, task.id, lease.attempt, Status.READY)


async def end_by_the_last_strike(store: TaskStore, task: NewTask) -> None:
    codes: list[int] = []
    for _ in range(store.limits.max_strikes):
        lease = await lease_one(store)
        codes.append(await store.release(LANE, task.id, lease.attempt, strike=True, alone=lease.isolated))
    assert codes == [1, 1, 2]


async def end_by_the_reaper(store: TaskStore, task: NewTask) -> None:
    for _ in range(store.limits.max_losses):
        await lease_one(store)
        await due(store, f"leased:{LANE}")
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


async def test_a_task_that_waits_again_keeps_its_hold(store: TaskStore, credits: Credits) -> None:
    task = await submitted(store, 900)
    lease = await lease_one(store)
    assert await store.release(LANE, task.id, lease.attempt, strike=True) == 1
    assert await assert_books_balance(credits) == Balance(FUNDS - 900, 900, 0, FUNDS)
    lease = await lease_one(store)
    await due(store, f"leased:{LANE}")
    assert await store.reap(LANE) == 1
    assert await assert_books_balance(credits) == Balance(FUNDS - 900, 900, 0, FUNDS)
    # The result of the lost worker still counts, as nobody else began.
    assert await store.complete(LANE, task.id, lease.attempt, Status.READY, cost=300)
    assert await assert_books_balance(credits) == Balance(FUNDS - 300, 0, 300, FUNDS)


# Repeats


async def test_a_repeated_submission_holds_once(store: TaskStore, credits: Credits) -> None:
    task = await submitted(store, 900)
    for _ in range(3):
        await store.submit(task)
    assert (await assert_books_balance(credits)).held == 900
    await completed(store)
    await store.submit(task)
    assert await assert_books_balance(credits) == Balance(FUNDS - 900, 0, 900, FUNDS)


async def test_a_submission_is_repeated_even_when_there_would_be_too_little_for_another(
    store: TaskStore, credits: Credits
) -> None:
    task = await submitted(store, FUNDS, idempotency_key="once", body_hash="b")
    assert (await store.submit(task)).reply == task.reply
    repeat = await store.submit(priced_task(FUNDS, idempotency_key="once", body_hash="b"))
    assert (repeat.reply, repeat.created) == (task.reply, False)
    assert (await assert_books_balance(credits)).held == FUNDS


async def test_an_idempotency_key_holds_once(store: TaskStore, credits: Credits) -> None:
    first = await submitted(store, 900, idempotency_key="once", body_hash="b")
    repeats = await asyncio.gather(
        *(store.submit(priced_task(900, idempotency_key="once", body_hash="b")) for _ in range(10))
    )
    assert {(repeat.reply, repeat.created) for repeat in repeats} == {(first.reply, False)}
    with pytest.raises(IdempotencyMismatch):
        await store.submit(priced_task(900, idempotency_key="once", body_hash="another"))
    assert await assert_books_balance(credits) == Balance(FUNDS - 900, 900, 0, FUNDS)


async def test_parallel_submissions_with_one_idempotency_key_hold_once(store: TaskStore, credits: Credits) -> None:
    answers = await asyncio.gather(
        *(store.submit(priced_task(900, idempotency_key="once", body_hash="b")) for _ in range(20))
    )
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.reply for answer in answers}) == 1
    assert (await assert_books_balance(credits)).held == 900


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
    await due(store, f"deadlines:{LANE}")
    await due(store, f"leased:{LANE}")
    await asyncio.gather(
        store.complete(LANE, task.id, lease.attempt, Status.READY, cost=100),
        store.expire(LANE),
        store.cancel(task.id, "p"),
        store.reap(LANE),
        store.release(LANE, task.id, lease.attempt, strike=True, alone=True),
    )
    found = await store.get(task.id)
    assert found is not None
    cost = found.cost or 0
    assert await assert_books_balance(credits) == Balance(FUNDS - cost, 0, cost, FUNDS)


async def test_a_stale_attempt_settles_nothing(store: TaskStore, credits: Credits) -> None:
    task = await submitted(store, 900)
    first = await lease_one(store)
    await store.release(LANE, task.id, first.attempt, strike=False)
    second = await lease_one(store)
    assert not await store.complete(LANE, task.id, first.attempt, Status.READY, cost=1)
    assert (await assert_books_balance(credits)).held == 900
    assert await store.complete(LANE, task.id, second.attempt, Status.READY, cost=2)
    assert (await assert_books_balance(credits)).spent == 2


# Refusals

PACE = Limits(requests_per_s=0.001, burst=2, max_active=1000)


@pytest.mark.parametrize(
    ("kind", "limits", "changes"),
    [
        (InsufficientCredits, PACE, {"price": FUNDS + 1}),
        (SpendingLimitReached, PACE, {"price": 5000}),
        (TooManyActive, Limits(requests_per_s=0.001, max_active=1), {"price": 1}),
        (QueueFull, Limits(requests_per_s=0.001, max_ready=1), {"price": 1}),
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
        with pytest.raises(kind):
            await refusing.submit(priced_task(**task))
    assert await contents(store.redis, store.prefix) == before


async def test_a_refused_request_can_be_repeated_once_there_are_credits(store: TaskStore, credits: Credits) -> None:
    task = priced_task(FUNDS + 5, idempotency_key="once", body_hash="b")
    with pytest.raises(InsufficientCredits) as refused:
        await store.submit(task)
    assert refused.value.balance == FUNDS
    assert await store.submitted("p", "once", "b") is None
    await credits.grant("acme", "second", 5, by="test")
    assert (await store.submit(task)).created
    assert await assert_books_balance(credits) == Balance(0, FUNDS + 5, 0, FUNDS + 5)


# Spending limits


@pytest.mark.parametrize("window", WINDOWS)
async def test_a_spending_limit_refuses_with_what_was_spent_and_when_that_ends(
    store: TaskStore, credits: Credits, projects: ProjectStore, window: Window
) -> None:
    await limit(projects, window, 1000)
    await submitted(store, 600)
    with pytest.raises(SpendingLimitReached) as refused:
        await store.submit(priced_task(401))
    [ends] = [found.until for found in await credits.spending("p") if found.window == window]
    about = refused.value
    assert (about.window, about.limit, about.spent) == (window, 1000, 600)
    assert about.resets == midnight(ends).timestamp()
    await submitted(store, 400)
    assert await spent(credits) == {1000}
    assert (await assert_books_balance(credits)).held == 1000


async def test_the_smallest_window_that_is_full_is_named(
    store: TaskStore, credits: Credits, projects: ProjectStore
) -> None:
    await projects.change(PROJECT, {"limit_day": 900, "limit_week": 500, "limit_month": 400}, "test")
    for price, window in ((901, "day"), (501, "week"), (401, "month")):
        with pytest.raises(SpendingLimitReached) as refused:
            await store.submit(priced_task(price))
        assert refused.value.window == window
    await submitted(store, 400)


async def test_a_limit_of_nothing_lets_free_tasks_pass(
    store: TaskStore, credits: Credits, projects: ProjectStore
) -> None:
    await limit(projects, "day", 0)
    with pytest.raises(SpendingLimitReached):
        await store.submit(priced_task(1))
    await submitted(store, 0)


async def test_a_limit_is_named_before_a_lack_of_credits(store: TaskStore, projects: ProjectStore) -> None:
    await limit(projects, "day", 100)
    with pytest.raises(SpendingLimitReached):
        await store.submit(priced_task(101))
    with pytest.raises(InsufficientCredits):
        await store.submit(priced_task(100))


async def test_a_change_of_a_limit_holds_for_the_next_submission(
    store: TaskStore, credits: Credits, projects: ProjectStore
) -> None:
    await submitted(store, 500)
    await limit(projects, "week", 500)
    with pytest.raises(SpendingLimitReached):
        await store.submit(priced_task(1))
    await limit(projects, "week", 501)
    await submitted(store, 1)
    # Below what is spent already.
    await limit(projects, "week", 100)
    with pytest.raises(SpendingLimitReached) as refused:
        await store.submit(priced_task(1))
    assert (refused.value.limit, refused.value.spent) == (100, 501)
    await limit(projects, "week", None)
    await submitted(store, 1)


async def test_projects_of_an_organization_have_limits_of_their_own(
    store: TaskStore, credits: Credits, projects: ProjectStore
) -> None:
    await limit(projects, "day", 100)
    await submitted(store, 100)
    await submitted(store, 300, project="q")
    assert (await spent(credits), await spent(credits, "q")) == ({100}, {300})
    with pytest.raises(SpendingLimitReached):
        await store.submit(priced_task(1))


@pytest.mark.parametrize("window", WINDOWS)
async def test_what_comes_back_is_free_to_spend_again(
    store: TaskStore, credits: Credits, projects: ProjectStore, window: Window
) -> None:
    await limit(projects, window, 1000)
    task = await submitted(store, 1000)
    with pytest.raises(SpendingLimitReached):
        await store.submit(priced_task(1))
    assert await store.cancel(task.id, "p") == 1
    await submitted(store, 1000)
    await completed(store, cost=300)
    with pytest.raises(SpendingLimitReached) as refused:
        await store.submit(priced_task(701))
    assert refused.value.spent == 300
    await submitted(store, 700)


async def counted(store: TaskStore, project: str = "p") -> dict[str, int]:
    """Every window of the project that is kept, by the rest of its key."""
    start = f"{store.prefix}spent:{project}:"
    found = {name: await store.redis.get(name) async for name in store.redis.scan_iter(f"{start}*")}
    return {name.removeprefix(start): int(amount or 0) for name, amount in found.items()}


async def test_a_return_frees_the_windows_that_the_submission_lay_in(store: TaskStore, credits: Credits) -> None:
    task = await submitted(store, 900)
    now = await counted(store)
    assert list(now.values()) == [900, 900, 900]
    # Another day, week and month, none of them forgotten yet.
    submission = (await credits.spending("p"))[0].since - timedelta(days=35)
    noon = round(midnight(submission).timestamp() + 43_200) * 1000
    await store.redis.hset(f"{store.prefix}task:{task.id}", "created", noon)  # type: ignore[misc]
    then = [f"{name}:{day_number(first)}" for name, (first, _) in windows_of(submission).items()]
    for name in then:
        await store.redis.set(f"{store.prefix}spent:p:{name}", 1000)
    await store.cancel(task.id, "p")
    assert await counted(store) == now | dict.fromkeys(then, 100)


async def test_a_return_to_a_window_that_is_forgotten_is_no_debt_of_it(store: TaskStore, credits: Credits) -> None:
    task = await submitted(store, 900)
    for name in await counted(store):
        await store.redis.delete(f"{store.prefix}spent:p:{name}")
    await store.cancel(task.id, "p")
    assert await counted(store) == {}
    assert (await assert_books_balance(credits)).balance == FUNDS


async def test_windows_are_kept_until_some_time_after_their_end(store: TaskStore, credits: Credits) -> None:
    await submitted(store, 900)
    names = await counted(store)
    ends = {window.window: midnight(window.until).timestamp() for window in await credits.spending("p")}
    for name in names:
        expires = await store.redis.expiretime(f"{store.prefix}spent:p:{name}")
        assert expires == ends[name.partition(":")[0]] + 40 * 86_400  # type: ignore[index]


async def test_spending_tells_the_present_windows(store: TaskStore, credits: Credits) -> None:
    await submitted(store, 900)
    day, week, month = await credits.spending("p")
    assert (day.window, week.window, month.window) == WINDOWS
    for window in (day, week, month):
        assert (window.since, window.until) == windows_of(day.since)[window.window]
        assert window.spent == 900
    assert await spent(credits, "nobody") == {0}


# Parallel submissions


async def in_parallel(store: TaskStore, n: int, price: int) -> list[BaseException | None]:
    """What refused each, None for accepted."""

    async def one() -> BaseException | None:
        try:
            await store.submit(priced_task(price))
        except Refused as refused:
            return refused
        return None

    return await asyncio.gather(*(one() for _ in range(n)))


@pytest.mark.parametrize("window", WINDOWS)
async def test_parallel_submissions_never_exceed_a_limit(
    store: TaskStore, credits: Credits, projects: ProjectStore, window: Window
) -> None:
    await limit(projects, window, 50 * 30 + 29)
    outcomes = await in_parallel(store, 200, 30)
    assert outcomes.count(None) == 50
    assert {type(outcome) for outcome in outcomes if outcome} == {SpendingLimitReached}
    assert await spent(credits) == {1500}
    assert (await assert_books_balance(credits)).held == 1500


async def test_parallel_submissions_never_exceed_the_balance(store: TaskStore, credits: Credits) -> None:
    await credits.grant("acme", "taken back", 50 * 30 + 29 - FUNDS, by="test")
    outcomes = await in_parallel(store, 200, 30)
    assert outcomes.count(None) == 50
    assert {type(outcome) for outcome in outcomes if outcome} == {InsufficientCredits}
    assert await assert_books_balance(credits) == Balance(29, 1500, 0, 1529)


# Grants


async def test_a_grant_is_made_once(redis: Redis, prefix: str) -> None:
    credits = Credits(redis, prefix)
    assert await credits.grant("acme", "order-1", 500, by="someone", note="welcome") == (500, True)
    assert await credits.grant("acme", "order-1", 500, by="someone") == (500, False)
    assert await credits.grant("acme", "order-1", 9999, by="someone") == (500, False)
    assert await credits.grant("acme", "order-2", 70, by="someone") == (570, True)
    assert await credits.grant("other", "order-1", 1, by="someone") == (1, True)
    assert await assert_books_balance(credits) == Balance(570, 0, 0, 570)
    entries, _ = await credits.ledger("acme", 10)
    assert [(entry.kind, entry.amount) for entry in entries] == [("grant", 70), ("grant", 500)]
    assert entries[-1].about == {"grant": "order-1", "by": "someone", "note": "welcome"}


async def test_parallel_repeats_of_a_grant_are_made_once(redis: Redis, prefix: str) -> None:
    credits = Credits(redis, prefix)
    made = await asyncio.gather(*(credits.grant("acme", "order-1", 500, by="someone") for _ in range(20)))
    assert sum(new for _, new in made) == 1
    assert {balance for balance, _ in made} == {500}


async def test_a_grant_can_be_taken_back_as_far_as_it_is_unspent(store: TaskStore, credits: Credits) -> None:
    await submitted(store, 900)
    with pytest.raises(TooLittle) as refused:
        await credits.grant("acme", "back", -(FUNDS - 899), by="test")
    assert refused.value.balance == FUNDS - 900
    # Refused, so not made: the same id may ask for less.
    assert await credits.grant("acme", "back", -(FUNDS - 900), by="test") == (0, True)
    assert await credits.grant("acme", "back", -(FUNDS - 900), by="test") == (0, False)
    assert await assert_books_balance(credits) == Balance(0, 900, 0, 900)
    await completed(store, cost=0)
    assert await assert_books_balance(credits) == Balance(900, 0, 0, 900)


async def test_a_refused_grant_writes_nothing(credits: Credits, redis: Redis, prefix: str) -> None:
    before = await contents(redis, prefix)
    with pytest.raises(TooLittle):
        await credits.grant("acme", "back", -FUNDS - 1, by="test")
    await credits.grant("acme", "first", 77, by="test")
    assert await contents(redis, prefix) == before


# Reports


async def test_the_ledger_is_read_in_pages_newest_first(redis: Redis, prefix: str) -> None:
    credits = Credits(redis, prefix)
    for n in range(1, 6):
        await credits.grant("acme", f"order-{n}", n, by="test")
    pages: list[list[int]] = []
    before: str | None = None
    while True:
        entries, before = await credits.ledger("acme", 2, before)
        pages.append([entry.amount for entry in entries])
        if before is None:
            break
        # What comes in meanwhile is on no later page.
        await credits.grant("acme", f"later-{len(pages)}", 100, by="test")
    assert pages == [[5, 4], [3, 2], [1]]
    assert await credits.ledger("nobody", 2) == ([], None)


async def test_a_page_that_holds_the_rest_has_no_next(redis: Redis, prefix: str) -> None:
    credits = Credits(redis, prefix)
    for n in range(4):
        await credits.grant("acme", f"order-{n}", 1, by="test")
    first, before = await credits.ledger("acme", 2)
    assert before == first[-1].id
    second, end = await credits.ledger("acme", 2, before)
    assert (len(second), end) == (2, None)
    assert first[-1].at >= second[0].at
    assert len({entry.id for entry in first + second}) == 4


async def usage(credits: Credits) -> list[Usage]:
    """Of about now."""
    today = (await credits.spending("p"))[0].since
    return await credits.usage("acme", today - timedelta(days=2), today + timedelta(days=2))


async def usage_day(store: TaskStore) -> date:
    """The latest day that has usage."""
    start = f"{store.prefix}usage:acme:"
    days = [int(name.removeprefix(start)) async for name in store.redis.scan_iter(f"{start}*")]
    return date(1970, 1, 1) + timedelta(days=max(days))


async def test_usage_is_told_by_day_project_and_endpoint(store: TaskStore, credits: Credits) -> None:
    for project, endpoint, price, cost in (
        ("p", "gen-a", 500, 400),
        ("p", "gen-a", 300, None),
        ("p", "gen-b", 50, 50),
        ("q", "gen-a", 7, 7),
        ("q", "gen-free", 0, None),
    ):
        await submitted(store, price, project=project, endpoint=endpoint)
        await completed(store, cost=cost)
    await submitted(store, 900, project="q", endpoint="gen-b")
    await completed(store, Status.ERROR)
    await submitted(store, 1, project="q", endpoint="gen-b")

    # As if all that had been the day before.
    day = await usage_day(store)
    yesterday = day - timedelta(days=1)
    base = f"{store.prefix}usage:acme:"
    await store.redis.rename(f"{base}{day_number(day)}", f"{base}{day_number(yesterday)}")
    await completed(store, cost=1)
    day = await usage_day(store)

    before = [
        Usage(yesterday, "p", "gen-a", tasks=2, cost=700),
        Usage(yesterday, "p", "gen-b", tasks=1, cost=50),
        Usage(yesterday, "q", "gen-a", tasks=1, cost=7),
        Usage(yesterday, "q", "gen-free", tasks=1, cost=0),
    ]
    today = [Usage(day, "q", "gen-b", tasks=1, cost=1)]
    assert await credits.usage("acme", yesterday, day) == before + today
    assert await credits.usage("acme", yesterday, yesterday) == before
    assert await credits.usage("acme", day, day) == today
    assert await credits.usage("acme", day, yesterday) == []
    assert await credits.usage("other", yesterday, day) == []
    assert (await assert_books_balance(credits)).spent == sum(row.cost for row in before + today)


async def test_usage_covers_a_year_at_most(store: TaskStore, credits: Credits) -> None:
    await submitted(store, 5)
    await completed(store)
    day = await usage_day(store)
    assert len(await credits.usage("acme", day - timedelta(days=MAX_DAYS - 1), day)) == 1
    assert await credits.usage("acme", day - timedelta(days=MAX_DAYS), day) == []
