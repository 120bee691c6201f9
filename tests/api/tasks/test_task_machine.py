"""A state machine: every sequence of steps by live and dead workers keeps the invariants of the task store."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from support.payloads import new_result
from support.state_machines import RedisMachine, run_machine
from support.tasks import QUEUE, new_task

from serve_app.tasks.limits import Limits
from serve_app.tasks.rejections import SubmitExpired, TooManyActive
from serve_app.tasks.scripts import CancelOutcome, ReleaseCause, ReleaseOutcome
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import TRANSITIONS, Lease, Status, Task

LIMITS = Limits(max_active=6, max_crashes=3, max_total_crashes=5, max_interruptions=4)


def machine(redis_url: str) -> type[RuleBasedStateMachine]:
    class TaskMachine(RedisMachine):
        leases = Bundle("leases")

        def __init__(self) -> None:
            # Without retries, since each answer is counted.
            super().__init__(redis_url, retries=0, timeout_s=60)
            self.store = TaskStore(self.redis, self.prefix, LIMITS)
            self.ids: list[str] = []
            self.last_tasks: dict[str, Task] = {}
            self.published: dict[str, int] = {}
            self.leased: Counter[str] = Counter()
            """Leases of each task."""
            self.losses: Counter[str] = Counter()
            """Times that each task was lost with a worker, or with a dispatcher after it had started."""
            self.started_attempts: set[tuple[str, int]] = set()
            self.swept: set[str] = set()

        # Ids are drawn, since they order tasks of one millisecond: a failure must be repeatable.
        @rule(task_id=st.uuids(), project=st.sampled_from("ab"), work=st.sampled_from((0.1, 1.0, 7.0)))
        def submit(self, task_id: uuid.UUID, project: str, work: float) -> None:
            if str(task_id) in self.swept.union(self.ids):
                return
            task = new_task(id=str(task_id), project=project, work=work)
            try:
                self.do(self.store.submit(task))
            except TooManyActive:
                active = sum(t.project == project and not t.status.terminal for t in self.last_tasks.values())
                assert active == LIMITS.max_active
                return
            except SubmitExpired:  # the server stalled; `one_place` sees that nothing was written
                return
            self.ids.append(task.id)

        @rule(target=leases, n=st.integers(1, 3), window=st.integers(1, 6))
        def lease(self, n: int, window: int) -> Any:
            leases: list[Lease] = self.do(self.store.lease(QUEUE, n, window))
            self.leased.update(lease.id for lease in leases)
            return multiple(*leases)

        @rule(lease=leases)
        def heartbeat(self, lease: Lease) -> None:
            self.do(self.store.heartbeat(QUEUE, [(lease.id, lease.attempt)]))

        @rule(lease=leases, progress=st.floats(0, 1), phase=st.sampled_from((Status.REASONING, Status.GENERATING)))
        def advance(self, lease: Lease, progress: float, phase: Status) -> None:
            current = self.do(self.store.advance(QUEUE, lease.id, lease.attempt, phase, progress=progress))
            if current and phase is Status.GENERATING:
                self.started_attempts.add((lease.id, lease.attempt))

        @rule(lease=leases, outcome=st.sampled_from((Status.READY, Status.ERROR, Status.CONTENT_MODERATED)))
        def complete(self, lease: Lease, outcome: Status) -> None:
            before = lease.id in self.swept or self.last_tasks[lease.id].status.terminal
            published = self.do(
                self.store.complete(QUEUE, lease.id, lease.attempt, outcome, result=new_result(seed=lease.attempt))
            )
            if published and not before:
                assert lease.id not in self.published
                self.published[lease.id] = lease.attempt
            elif published:
                assert self.published.get(lease.id) == lease.attempt

        @rule(lease=consumes(leases), cause=st.sampled_from(ReleaseCause))
        def release(self, lease: Lease, cause: ReleaseCause) -> None:
            released = self.do(self.store.release(QUEUE, lease.id, lease.attempt, cause))
            is_crash = cause in (ReleaseCause.CRASH, ReleaseCause.CRASH_ALONE)
            self.losses[lease.id] += is_crash and released is not ReleaseOutcome.STALE

        @rule(pick=st.integers(0, 1000), project=st.sampled_from("ab"))
        def cancel(self, pick: int, project: str) -> None:
            if self.ids:
                task_id = self.ids[pick % len(self.ids)]
                outcome = self.do(self.store.cancel(task_id, project))
                assert (outcome is CancelOutcome.UNKNOWN) == (self.last_tasks[task_id].project != project)
                if outcome is not CancelOutcome.UNKNOWN:
                    assert self.do(self.store.reads.get(task_id)).status.terminal

        @rule()
        def dispatchers_die_and_are_reaped(self) -> None:
            key = f"{self.store.prefix}leased:{QUEUE}"
            for member in self.do(self.redis.zrange(key, 0, -1)):
                self.do(self.redis.zadd(key, {member: 1}))
                self.losses[member] += (member, self.leased[member]) in self.started_attempts
            self.do(self.store.reap(QUEUE))

        @rule()
        def oldest_deadline_passes(self) -> None:
            key = f"{self.store.prefix}deadlines:{QUEUE}"
            for member in self.do(self.redis.zrange(key, 0, 0)):
                self.do(self.redis.zadd(key, {member: 1}))
            self.do(self.store.end_overdue(QUEUE))

        @rule()
        def oldest_ended_task_is_swept(self) -> None:
            for member in self.do(self.redis.zrange(f"{self.store.prefix}retention", 0, 0)):
                self.do(self.redis.zadd(f"{self.store.prefix}retention", {member: 1}))
                assert self.do(self.store.sweep()) == [member]
                assert self.do(self.store.sweep([member])) == []
                self.ids.remove(member)
                self.swept.add(member)

        @invariant()
        def invariants_hold(self) -> None:
            """Checks the invariants of `serve_app/tasks/store.py`, by their names."""
            found = self.do(self.store.reads.get_many(self.ids))
            assert None not in found
            tasks: dict[str, Task] = dict(zip(self.ids, found, strict=True))
            self.one_outcome(tasks)
            self.one_place(tasks)
            assert {i: task.attempt for i, task in tasks.items()} == {i: self.leased[i] for i in tasks}, "fencing"
            assert all(task.crashes <= self.losses[i] for i, task in tasks.items()), "crashes are losses"
            assert set(self.do(self.store.reads.get_many(sorted(self.swept)))) <= {None}, "gone for good"

        def one_outcome(self, tasks: dict[str, Task]) -> None:
            for task_id, task in tasks.items():
                before = self.last_tasks.get(task_id)
                if before is not None:
                    assert task.status is before.status or task.status in TRANSITIONS[before.status]
                    assert (task.progress or 0) >= (before.progress or 0)
                    assert task == before or not before.status.terminal
                self.last_tasks[task_id] = task

        def one_place(self, tasks: dict[str, Task]) -> None:
            names = [f"{name}:{QUEUE}" for name in ("queued", "quarantined", "leased", "deadlines")]
            pipe = self.redis.pipeline(transaction=False)
            for name in (*names, "retention", "active:a", "active:b"):
                pipe.zrange(self.store.prefix + name, 0, -1)
            pipe.smembers(f"{self.store.prefix}exclusive:{QUEUE}")
            queued, quarantined, leased, deadlines, retention, *active, exclusive = map(set, self.do(pipe.execute()))
            alive = {i for i, task in tasks.items() if not task.status.terminal}
            assert deadlines == alive
            assert retention == set(tasks) - alive
            assert exclusive <= leased
            assert queued | quarantined | leased == alive
            assert len(queued) + len(quarantined) + len(leased) == len(alive), "a task waits in two places"
            for project, members in zip("ab", active, strict=True):
                assert members == {i for i in alive if tasks[i].project == project}

    return TaskMachine


@pytest.mark.parametrize("examples", [30, pytest.param(60, marks=pytest.mark.slow)])
def test_task_machine(redis_url: str, examples: int) -> None:
    run_machine(machine(redis_url), examples=examples, steps=40)
