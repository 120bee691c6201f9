"""Any sequence of steps, repeated or not, keeps the books as a model in Python does."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta

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
from serve_app.tasks.task import Lease, NewTask, Status

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


@dataclass
class Job:
    """A task in the model."""

    new: NewTask
    day: date
    attempt: int = 0
    leased: bool = False
    started: bool = False
    """True once a worker has started the current attempt."""
    cancelled: bool = False
    crashes: int = 0
    losses: int = 0
    status: Status | None = None
    """Terminal status; None before the end."""
    cost: int = 0
    published_by: int | None = None

    @property
    def hold_amount(self) -> int:
        return self.new.price if self.status is None else 0

    def holds(self, lease: Lease) -> bool:
        return self.leased and self.attempt == lease.attempt

    def end(self, status: Status, cost: int | None = None) -> None:
        self.status, self.leased = status, False
        if status is Status.READY:
            self.cost = self.new.price if cost is None else min(cost, self.new.price)

    def requeue(self, *, crash: bool, alone: bool) -> ReleaseOutcome:
        self.leased = False
        if crash:
            self.losses += 1
            self.crashes += 1
            if not alone:
                self.crashes = min(self.crashes, LIMITS.max_crashes - 1)
        if self.crashes >= LIMITS.max_crashes or self.losses >= LIMITS.max_total_crashes:
            self.end(Status.ERROR)
            return ReleaseOutcome.ENDED
        return ReleaseOutcome.REQUEUED


@dataclass
class Books:
    """The model: everything follows from the grants and the ends of tasks."""

    jobs: dict[str, Job] = field(default_factory=dict)
    grants: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in ORGANIZATIONS})
    limits: dict[tuple[str, Window], int] = field(default_factory=dict)

    def get_jobs(self, organization: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.new.organization == organization]

    def waiting(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.status is None and not job.leased]

    def leased_jobs(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.leased]

    def balance(self, organization: str) -> Balance:
        granted = sum(self.grants[organization].values())
        holds = sum(job.hold_amount for job in self.get_jobs(organization))
        spent = sum(job.cost for job in self.get_jobs(organization))
        return Balance(granted - holds - spent, holds, spent, granted)

    def spent(self, project: str, since: date, until: date) -> int:
        mine = (job for job in self.jobs.values() if job.new.project == project)
        return sum(job.hold_amount + job.cost for job in mine if since <= job.day < until)


def machine(redis_url: str) -> type[RuleBasedStateMachine]:
    class MoneyMachine(RedisMachine):
        def __init__(self) -> None:
            super().__init__(redis_url)
            self.store = TaskStore(self.redis, self.prefix, LIMITS)
            self.credits = CreditStore(self.redis, self.prefix)
            self.projects = ProjectStore(self.redis, self.prefix)
            self.books = Books()
            self.leases: list[Lease] = []
            # Not random: the order of leases must be the same when Hypothesis repeats a run.
            self.new_ids = (f"task-{n:04}" for n in itertools.count())
            for organization in ORGANIZATIONS:
                self.do(self.credits.grant(organization, "first", 2000, by="test"))
                self.books.grants[organization]["first"] = 2000

        def pick_job(self, pick: int) -> Job:
            jobs = list(self.books.jobs.values())
            return jobs[pick % len(jobs)]

        def any_lease(self, pick: int) -> Lease:
            """Returns a valid lease half of the time. Of all leases, most are stale."""
            valid = [lease for lease in self.leases if self.books.jobs[lease.id].holds(lease)]
            leases = valid if valid and pick % 2 == 0 else self.leases
            return leases[pick // 2 % len(leases)]

        def make_due(self, index: str, members: Iterable[str]) -> None:
            for member in members:
                self.do(self.redis.zadd(f"{self.store.prefix}{index}:{QUEUE}", {member: 1}, xx=True))

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
            organization = PROJECTS[project].organization
            task_id = next(self.new_ids)
            task = priced_task(
                price,
                id=task_id,
                project=project,
                organization=organization,
                idempotency_key=task_id,
                body_hash="b",
            )
            try:
                accepted = self.do(self.store.submit(task))
            except TaskRejected as refused:
                self.check_refusal(project, price, refused)
                return
            assert accepted.created
            assert price == 0 or self.books.balance(organization).balance >= price
            stored = self.do(self.store.reads.get(task.id))
            self.books.jobs[task.id] = Job(task, to_day(stored.created))
            if price:
                for window, (since, until) in compute_windows(to_day(stored.created)).items():
                    limit = self.books.limits.get((project, window))
                    assert limit is None or self.books.spent(project, since, until) <= limit

        def check_refusal(self, project: str, price: int, refused: TaskRejected) -> None:
            if isinstance(refused, InsufficientCredits):
                assert refused.balance == self.books.balance(PROJECTS[project].organization).balance < price
                return
            assert isinstance(refused, SpendingLimitReached)
            assert refused.window in WINDOWS
            last = to_day(refused.resets) - timedelta(days=1)
            since, until = compute_windows(last)[refused.window]
            assert to_day(refused.resets) == until
            assert refused.limit == self.books.limits[project, refused.window]
            assert refused.spent == self.books.spent(project, since, until)
            assert refused.spent + price > refused.limit

        @precondition(lambda self: self.books.jobs)
        @rule(pick=PICK, new_id=st.booleans())
        def submit_again(self, pick: int, new_id: bool) -> None:
            """Repeats a call, or with a new id a request."""
            job = self.pick_job(pick)
            task = replace(job.new, id=next(self.new_ids)) if new_id else job.new
            accepted = self.do(self.store.submit(task))
            assert (accepted.reply, accepted.created) == (job.new.reply, not new_id)

        # Work

        @precondition(lambda self: self.books.waiting())
        @rule(n=st.integers(1, 3))
        def lease(self, n: int) -> None:
            self.lease_some(n)

        def lease_some(self, n: int) -> list[Lease]:
            new_leases: list[Lease] = self.do(self.store.lease(QUEUE, n, 1000))
            for lease in new_leases:
                job = self.books.jobs[lease.id]
                assert (job.status, job.leased) == (None, False)
                job.attempt, job.leased, job.started = lease.attempt, True, False
            self.leases += new_leases
            return new_leases

        @precondition(lambda self: self.books.waiting())
        @rule(outcomes=st.lists(st.tuples(OUTCOMES, COSTS), min_size=1, max_size=3))
        def work(self, outcomes: list[tuple[Status, int | None]]) -> None:
            for lease, (outcome, cost) in zip(self.lease_some(len(outcomes)), outcomes, strict=False):
                self.complete_one(lease, outcome, cost)

        @precondition(lambda self: self.leases)
        @rule(pick=PICK, times=TIMES)
        def begin(self, pick: int, times: int) -> None:
            lease = self.any_lease(pick)
            job = self.books.jobs[lease.id]
            for _ in range(times):
                current = self.do(self.store.advance(QUEUE, lease.id, lease.attempt, Status.GENERATING))
                assert current == job.holds(lease)
                job.started = job.started or current

        @precondition(lambda self: self.leases)
        @rule(pick=PICK, outcome=OUTCOMES, cost=COSTS, times=TIMES)
        def complete(self, pick: int, outcome: Status, cost: int | None, times: int) -> None:
            lease = self.any_lease(pick)
            for _ in range(times):
                self.complete_one(lease, outcome, cost)

        def complete_one(self, lease: Lease, outcome: Status, cost: int | None) -> None:
            job = self.books.jobs[lease.id]
            published = self.do(self.store.complete(QUEUE, lease.id, lease.attempt, outcome, cost=cost))
            if job.status is None and job.attempt == lease.attempt:
                job.end(outcome, cost)
                job.published_by = lease.attempt
            assert published == (job.published_by == lease.attempt)

        @precondition(lambda self: self.leases)
        @rule(pick=PICK, crash=st.booleans(), alone=st.booleans(), times=TIMES)
        def release(self, pick: int, crash: bool, alone: bool, times: int) -> None:
            lease = self.any_lease(pick)
            job = self.books.jobs[lease.id]
            for _ in range(times):
                expected = job.requeue(crash=crash, alone=alone) if job.holds(lease) else ReleaseOutcome.STALE
                cause = (ReleaseCause.CRASH_ALONE if alone else ReleaseCause.CRASH) if crash else ReleaseCause.REQUEUE
                assert self.do(self.store.release(QUEUE, lease.id, lease.attempt, cause)) is expected

        # Other ends

        @precondition(lambda self: self.books.jobs)
        @rule(pick=PICK, project=st.sampled_from((None, *PROJECTS)), times=TIMES)
        def cancel(self, pick: int, project: str | None, times: int) -> None:
            job = self.pick_job(pick)
            by = project or job.new.project
            for _ in range(times):
                if by == job.new.project and job.status is None:
                    job.end(Status.ERROR)
                    job.cancelled = True
                expected = CancelOutcome.CANCELLED if job.cancelled else CancelOutcome.ENDED
                if by != job.new.project:
                    expected = CancelOutcome.UNKNOWN
                assert self.do(self.store.cancel(job.new.id, by)) is expected

        @precondition(lambda self: self.books.jobs)
        @rule(pick=PICK, times=TIMES)
        def expire(self, pick: int, times: int) -> None:
            job = self.pick_job(pick)
            self.make_due("deadlines", [job.new.id])
            for _ in range(times):
                assert self.do(self.store.end_overdue(QUEUE)) == (job.status is None)
                if job.status is None:
                    job.end(Status.ERROR)

        @precondition(lambda self: self.books.leased_jobs())
        @rule(times=TIMES)
        def reap(self, times: int) -> None:
            leased = self.books.leased_jobs()
            self.make_due("leased", [job.new.id for job in leased])
            assert self.do(self.store.reap(QUEUE)) == len(leased)
            for job in leased:
                job.requeue(crash=job.started, alone=False)
            for _ in range(times - 1):
                assert self.do(self.store.reap(QUEUE)) == 0

        # Accounts

        @rule(
            organization=st.sampled_from(ORGANIZATIONS),
            grant_id=st.sampled_from(("first", "second", "third", "fourth")),
            amount=st.sampled_from((-3000, -700, -1, 1, 500, 2500)),
            times=TIMES,
        )
        def grant(self, organization: str, grant_id: str, amount: int, times: int) -> None:
            grants = self.books.grants[organization]
            for _ in range(times):
                before = self.books.balance(organization).balance
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
            times=TIMES,
        )
        def change_limit(self, project: str, window: Window, limit: int | None, times: int) -> None:
            for _ in range(times):
                self.do(self.projects.change(PROJECTS[project], {f"limit_{window}": limit}, "test"))
            if limit is None:
                self.books.limits.pop((project, window), None)
            else:
                self.books.limits[project, window] = limit

        # What always holds

        @invariant()
        def balances_are_those_of_the_model(self) -> None:
            for organization in ORGANIZATIONS:
                actual = self.do(assert_books_balance(self.credits, organization))
                assert actual == self.books.balance(organization)

        @invariant()
        def held_until_ended(self) -> None:
            for task_id, job in self.books.jobs.items():
                task = self.do(self.store.reads.get(task_id))
                assert task.status.terminal == (job.status is not None)
                assert job.status in (None, task.status)
                assert task.cost == (job.cost if job.status is Status.READY else None)
                amount = self.do(self.redis.hget(f"{self.store.prefix}task:{task_id}", "held"))
                assert amount == (str(job.new.price) if job.status is None else None)

        @invariant()
        def spending_is_that_of_the_model(self) -> None:
            for project in PROJECTS:
                for window in self.do(self.credits.spending(project)):
                    assert window.spent == self.books.spent(project, window.since, window.until)

    return MoneyMachine


def to_day(seconds: float) -> date:
    return datetime.fromtimestamp(seconds, UTC).date()


@pytest.mark.parametrize("examples", [15, pytest.param(40, marks=pytest.mark.slow)])
def test_money_machine(redis_url: str, examples: int) -> None:
    run_machine(machine(redis_url), examples=examples, steps=30)
