"""A project spends no more in a day, a week or a month than its limits say."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from support.books import (
    FUNDS,
    assert_books_balance,
    completed,
    limit,
    priced_task,
    spent,
    submitted,
)

from serve_app.accounts.audit import WINDOWS, Window, day_number, midnight, windows_of
from serve_app.accounts.credits import Credits
from serve_app.accounts.projects import ProjectStore
from serve_app.tasks.limits import (
    InsufficientCredits,
    Refused,
    SpendingLimitReached,
)
from serve_app.tasks.store import TaskStore


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
    found = {name: await store.redis.get(name) async for name in store.redis.scan_iter(f"{start}*", count=10_000)}
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
    assert {name.partition(":")[0] for name in names} == set(WINDOWS)
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
