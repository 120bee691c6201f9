"""Any sequence of steps, repeated or not, keeps the books as a model in Python does.

The model takes the states of tasks from the store: `test_task_machine.py` checks those.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.ledger import assert_books_balance, priced_task
from support.state_machines import RedisMachine, run_machine
from support.tasks import QUEUE

from serve_app.accounts.credits import Balance, CreditStore, InsufficientBalance
from serve_app.accounts.projects import Project, ProjectStore
from serve_app.accounts.windows import WINDOWS, Window, compute_windows
from serve_app.tasks.limits import Limits
from serve_app.tasks.rejections import InsufficientCredits, SpendingLimitReached, TaskRejected
from serve_app.tasks.scripts import CancelOutcome, ReleaseCause, ReleaseOutcome
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease, NewTask, Status, Task

LIMITS = Limits(max_active=1000, max_crashes=2, max_total_crashes=3, max_exclusive=100)
PROJECTS = {project.id: project for project in (Project("a1", "a"), Project("a2", "a"), Project("b1", "b"))}
ORGANIZATIONS = ("a", "b")
PRICES = st.sampled_from((150, 400, 0, 1, 1000))
COSTS = st.sampled_from((None, 0, 100, 5000))
"""Costs, some of them above every price."""
OUTCOMES = st.sampled_from(
    (Status.READY, Status.READY, Status.READY, Status.ERROR, Status.REQUEST_MODERATED, Status.CONTENT_MODERATED)
)
PICK = st.integers(0, 60)
TIMES = st.integers(1, 2)


def machine(redis_url: str) -> type[RuleBasedStateMachine]:
    class MoneyMachine(RedisMachine):
        def __init__(self) -> None:
            super().__init__(redis_url)
            self.store = TaskStore(self.redis, self.prefix, LIMITS)
            self.credits = CreditStore(self.redis, self.prefix)
            self.projects = ProjectStore(self.redis, self.prefix)
            self.submitted: dict[str, NewTask] = {}
            self.tasks: dict[str, Task] = {}
            """Submitted tasks as they were read after the last step."""
            self.costs: dict[str, int] = {}
            """Expected costs of ready tasks."""
            self.published_by: dict[str, int] = {}
            """Attempts that ended their task with an outcome."""
            self.cancelled: set[str] = set()
            self.grants: dict[str, dict[str, int]] = {}
            self.limits: dict[tuple[str, Window], int] = {}
            self.leases: list[Lease] = []
            # Not random: the order of leases must be the same when Hypothesis repeats a run.
            self.new_ids = (f"task-{n:04}" for n in itertools.count())
            for organization in ORGANIZATIONS:
                self.do(self.credits.grant(organization, "first", 2000, by="test"))
                self.grants[organization] = {"first": 2000}

        # The model

        def read(self, task_id: str) -> Task:
            self.tasks[task_id] = self.do(self.store.reads.get(task_id))
            return self.tasks[task_id]

        def held(self, task: NewTask) -> int:
            return 0 if self.tasks[task.id].status.terminal else task.price

        def balance(self, organization: str) -> Balance:
            tasks = [task for task in self.submitted.values() if task.organization == organization]
            granted = sum(self.grants[organization].values())
            held = sum(map(self.held, tasks))
            spent = sum(self.costs.get(task.id, 0) for task in tasks)
            return Balance(granted - held - spent, held, spent, granted)

        def spent(self, project: str, since: date, until: date) -> int:
            return sum(
                self.held(task) + self.costs.get(task.id, 0)
                for task in self.submitted.values()
                if task.project == project and since <= to_day(self.tasks[task.id].created) < until
            )

        # Submission

        @initialize(prices=st.lists(PRICES, min_size=2, max_size=4))
        def start(self, prices: list[int]) -> None:
            for project, price in zip(itertools.cycle(PROJECTS), prices, strict=False):
                self.submit_one(project, price)

        @rule(project=st.sampled_from(sorted(PROJECTS)), prices=st.lists(PRICES, min_size=1, max_size=3))
        def submit(self, project: str, prices: list[int]) -> None:
            for price in prices:
                self.submit_one(project, price)

        def submit_one(self, project: str, price: int) -> None:
            organization, task_id = PROJECTS[project].organization, next(self.new_ids)
            owner: dict[str, Any] = {"project": project, "organization": organization}
            task = priced_task(price, id=task_id, idempotency_key=task_id, body_hash="b", **owner)
            balance = self.balance(organization).balance
            try:
                accepted = self.do(self.store.submit(task))
            except TaskRejected as refused:
                self.check_refusal(task, balance, refused)
                return
            assert accepted.created
            assert price <= balance
            self.submitted[task_id] = task
            windows = compute_windows(to_day(self.read(task_id).created))
            if price:
                for window, (since, until) in windows.items():
                    limit = self.limits.get((project, window))
                    assert limit is None or self.spent(project, since, until) <= limit

        def check_refusal(self, task: NewTask, balance: int, refused: TaskRejected) -> None:
            if isinstance(refused, InsufficientCredits):
                assert refused.balance == balance < task.price
                return
            assert isinstance(refused, SpendingLimitReached)
            assert refused.window in WINDOWS
            last = to_day(refused.resets) - timedelta(days=1)
            since, until = compute_windows(last)[refused.window]
            assert to_day(refused.resets) == until
            assert refused.limit == self.limits[task.project, refused.window]
            assert refused.spent == self.spent(task.project, since, until)
            assert refused.spent + task.price > refused.limit

        def pick_task(self, pick: int) -> NewTask:
            return list(self.submitted.values())[pick % len(self.submitted)]

        @precondition(lambda self: self.submitted)
        @rule(pick=PICK, new_id=st.booleans())
        def submit_again(self, pick: int, new_id: bool) -> None:
            """Repeats a call, or with a new id a request."""
            task = self.pick_task(pick)
            accepted = self.do(self.store.submit(replace(task, id=next(self.new_ids)) if new_id else task))
            assert (accepted.reply, accepted.created) == (task.reply, not new_id)

        # Work

        @rule(outcomes=st.lists(st.tuples(OUTCOMES, COSTS), min_size=1, max_size=3), completes=st.booleans())
        def lease(self, outcomes: list[tuple[Status, int | None]], completes: bool) -> None:
            leases: list[Lease] = self.do(self.store.lease(QUEUE, len(outcomes), 1000))
            self.leases += leases
            for lease, (outcome, cost) in zip(leases, outcomes, strict=False):
                if completes:
                    self.complete_one(lease, outcome, cost)

        def pick_lease(self, pick: int) -> Lease:
            """Returns a current lease half of the time. Of all leases, most are stale."""
            current = [lease for lease in self.leases if self.is_current(lease, self.tasks[lease.id])]
            leases = current if current and pick % 2 == 0 else self.leases
            return leases[pick // 2 % len(leases)]

        def is_current(self, lease: Lease, task: Task) -> bool:
            return lease.attempt == task.attempt and not task.status.terminal

        @precondition(lambda self: self.leases)
        @rule(pick=PICK, times=TIMES)
        def begin(self, pick: int, times: int) -> None:
            lease = self.pick_lease(pick)
            for _ in range(times):
                self.do(self.store.advance(QUEUE, lease.id, lease.attempt, Status.GENERATING))

        @precondition(lambda self: self.leases)
        @rule(pick=PICK, outcome=OUTCOMES, cost=COSTS, times=TIMES)
        def complete(self, pick: int, outcome: Status, cost: int | None, times: int) -> None:
            lease = self.pick_lease(pick)
            for _ in range(times):
                self.complete_one(lease, outcome, cost)

        def complete_one(self, lease: Lease, outcome: Status, cost: int | None) -> None:
            if self.is_current(lease, self.read(lease.id)):
                self.published_by[lease.id] = lease.attempt
                if outcome is Status.READY:
                    price = self.submitted[lease.id].price
                    self.costs[lease.id] = price if cost is None else min(cost, price)
            published = self.do(self.store.complete(QUEUE, lease.id, lease.attempt, outcome, cost=cost))
            assert published == (self.published_by.get(lease.id) == lease.attempt)

        @precondition(lambda self: self.leases)
        @rule(pick=PICK, cause=st.sampled_from(ReleaseCause), times=TIMES)
        def release(self, pick: int, cause: ReleaseCause, times: int) -> None:
            lease = self.pick_lease(pick)
            outcomes = [self.do(self.store.release(QUEUE, lease.id, lease.attempt, cause)) for _ in range(times)]
            assert set(outcomes[1:]) <= {ReleaseOutcome.STALE}

        # Other ends

        @precondition(lambda self: self.submitted)
        @rule(pick=PICK, project=st.sampled_from((None, *PROJECTS)), times=TIMES)
        def cancel(self, pick: int, project: str | None, times: int) -> None:
            task = self.pick_task(pick)
            foreign = project not in (None, task.project)
            for _ in range(times):
                if not foreign and not self.read(task.id).status.terminal:
                    self.cancelled.add(task.id)
                expected = CancelOutcome.CANCELLED if task.id in self.cancelled else CancelOutcome.ENDED
                outcome = self.do(self.store.cancel(task.id, project or task.project))
                assert outcome is (CancelOutcome.UNKNOWN if foreign else expected)

        @precondition(lambda self: self.submitted)
        @rule(pick=PICK, times=TIMES)
        def expire(self, pick: int, times: int) -> None:
            task_id = self.pick_task(pick).id
            self.make_due("deadlines", [task_id])
            for _ in range(times):
                unfinished = not self.read(task_id).status.terminal
                assert self.do(self.store.end_overdue(QUEUE)) == unfinished

        @rule(times=TIMES)
        def reap(self, times: int) -> None:
            self.make_due("leased", self.submitted)
            for _ in range(times):
                self.do(self.store.reap(QUEUE))

        def make_due(self, index: str, members: Iterable[str]) -> None:
            for member in members:
                self.do(self.redis.zadd(f"{self.store.prefix}{index}:{QUEUE}", {member: 1}, xx=True))

        # Accounts

        @rule(
            organization=st.sampled_from(ORGANIZATIONS),
            grant_id=st.sampled_from(("first", "second", "third", "fourth")),
            amount=st.sampled_from((-3000, -700, -1, 1, 500, 2500)),
            times=TIMES,
        )
        def grant(self, organization: str, grant_id: str, amount: int, times: int) -> None:
            grants = self.grants[organization]
            for _ in range(times):
                before = self.balance(organization).balance
                if grant_id in grants:
                    expected = (before, False)
                elif before + amount < 0:
                    with pytest.raises(InsufficientBalance) as refused:
                        self.do(self.credits.grant(organization, grant_id, amount, by="test"))
                    assert refused.value.balance == before
                    continue
                else:
                    grants[grant_id] = amount
                    expected = (before + amount, True)
                assert self.do(self.credits.grant(organization, grant_id, amount, by="test")) == expected

        @rule(
            project=st.sampled_from(sorted(PROJECTS)),
            window=st.sampled_from(WINDOWS),
            limit=st.sampled_from((None, None, 0, 400, 600, 1500)),
        )
        def change_limit(self, project: str, window: Window, limit: int | None) -> None:
            self.do(self.projects.change(PROJECTS[project], {f"limit_{window}": limit}, "test"))
            if limit is None:
                self.limits.pop((project, window), None)
            else:
                self.limits[project, window] = limit

        @invariant()
        def books_are_those_of_the_model(self) -> None:
            for task_id, submitted in self.submitted.items():
                task = self.read(task_id)
                assert (task.status is Status.READY) == (task_id in self.costs)
                assert task.cost == self.costs.get(task_id)
                held = self.do(self.redis.hget(f"{self.store.prefix}task:{task_id}", "held"))
                assert held == (None if task.status.terminal else str(submitted.price))
            for organization in ORGANIZATIONS:
                assert self.do(assert_books_balance(self.credits, organization)) == self.balance(organization)
            for project in PROJECTS:
                for window in self.do(self.credits.spending(project)):
                    assert window.spent == self.spent(project, window.since, window.until)

    return MoneyMachine


def to_day(seconds: float) -> date:
    return datetime.fromtimestamp(seconds, UTC).date()


@pytest.mark.parametrize("examples", [15, pytest.param(40, marks=pytest.mark.slow)])
def test_money_machine(redis_url: str, examples: int) -> None:
    run_machine(machine(redis_url), examples=examples, steps=30)
