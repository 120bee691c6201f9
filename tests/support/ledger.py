"""Tasks with a price, and the check that the ledger balances."""

from __future__ import annotations

from typing import Any

from serve_app.accounts.credits import Balance, CreditStore
from serve_app.accounts.projects import Project, ProjectStore
from serve_app.accounts.windows import Window
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import NewTask, Status
from support.tasks import QUEUE, lease_one, new_task

ORGANIZATION = "acme"
PROJECT = Project("p", ORGANIZATION)
FUNDS = 10_000
"""The organization's first grant, in milli-credits."""


def priced_task(price: int, **changes: Any) -> NewTask:
    """Returns a task of the organization `acme`; the price is in milli-credits."""
    return new_task(**{"organization": ORGANIZATION, "price": price} | changes)


async def assert_books_balance(credits: CreditStore, organization: str = ORGANIZATION) -> Balance:
    """Checks the invariants of the ledger. Returns the balance."""
    balance = await credits.balance(organization)
    entries, more = await credits.ledger(organization, 100_000)
    assert more is None
    assert sum(entry.amount for entry in entries) == balance.balance
    assert balance.granted == balance.balance + balance.held + balance.spent
    assert min(balance.balance, balance.held, balance.spent) >= 0
    running = 0
    for entry in reversed(entries):
        running += entry.amount
        assert entry.balance == running >= 0
    return balance


async def limit(projects: ProjectStore, window: Window, amount: int | None) -> None:
    await projects.change(PROJECT, {f"limit_{window}": amount}, "test")


async def submit(store: TaskStore, price: int, **changes: Any) -> NewTask:
    task = priced_task(price, **changes)
    assert (await store.submit(task)).created
    return task


async def complete(store: TaskStore, status: Status = Status.READY, cost: int | None = None) -> None:
    lease = await lease_one(store)
    assert await store.complete(QUEUE, lease.id, lease.attempt, status, cost=cost)
