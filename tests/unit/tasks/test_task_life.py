"""The life of tasks, looked at from end to end: no order of steps and mishaps breaks a promise of the store.

`support/task_life/steps.py` tells what a step is, what a mishap is, and what is left out. There are two dispatchers.
"""

from __future__ import annotations

import pytest
from support.task_life.scripts import ABSENT, ENDED, ERROR, GENERATING, PENDING, Scripts, Task
from support.task_life.search import ALWAYS_AN_END, search
from support.task_life.steps import TaskLife


@pytest.mark.slow
@pytest.mark.parametrize(
    ("life", "mishaps"),
    [
        pytest.param(TaskLife(Scripts(), tasks=1), 3, id="one task, three mishaps"),
        pytest.param(TaskLife(Scripts(), tasks=2), 1, id="two tasks, one mishap"),
        pytest.param(TaskLife(Scripts(), tasks=2, same_key=True), 2, id="a repeated request, two mishaps"),
    ],
)
def test_no_order_of_steps_and_mishaps_breaks_a_promise(life: TaskLife, mishaps: int) -> None:
    found = search(life, mishaps)
    assert not found.violated, "\n".join((f"{found.violated}, after {found.states} states:", *found.trace))


class LeaveItQueued(Scripts):
    """`finish` forgets the queue."""

    def finish(self, task: Task, status: str) -> Task:
        waited = tuple(place for place in ("queued", "suspects") if place in task.places)
        return super().finish(task, status).moved(into=waited)


class LeaveItLeased(Scripts):
    """`put_back` forgets the leases."""

    def put_back(self, task: Task, strike: bool, alone: bool) -> Task:
        return super().put_back(task, strike, alone).moved(into=("leased",))


class CompleteUnfenced(Scripts):
    """`complete` takes any attempt for the present one."""

    def complete(self, task: Task, attempt: int, status: str) -> tuple[Task, bool]:
        return super().complete(task, task.attempt, status)


class ReleaseUnfenced(Scripts):
    def release(self, task: Task, attempt: int, strike: bool, alone: bool) -> tuple[Task, bool]:
        return super().release(task, task.attempt, strike, alone)


class CompleteTwice(Scripts):
    """`complete` looks at the attempt alone, not at whether the task has ended."""

    def complete(self, task: Task, attempt: int, status: str) -> tuple[Task, bool]:
        if task.attempt != attempt or task.status not in ENDED:
            return super().complete(task, attempt, status)
        return task._replace(status=status, published=(*task.published, attempt)), True


class CancelWhatEnded(Scripts):
    def cancel(self, task: Task) -> tuple[Task, str]:
        if task.status not in ENDED:
            return super().cancel(task)
        return task._replace(status=ERROR, cancelled=True), "cancelled"


class ReapAlwaysStrikes(Scripts):
    def reap(self, task: Task) -> Task:
        return self.put_back(task, True, alone=False)


class ReleaseStrikesTwice(Scripts):
    """`release` looks at the attempt alone, not at whether the task is leased."""

    def release(self, task: Task, attempt: int, strike: bool, alone: bool) -> tuple[Task, bool]:
        if task.attempt != attempt or task.status not in (PENDING, GENERATING):
            return task, False
        return self.put_back(task, strike, alone), True


class KeepTheMoney(Scripts):
    """`cancel` does not give the price back."""

    def cancel(self, task: Task) -> tuple[Task, str]:
        after, answer = super().cancel(task)
        return after._replace(held=task.held), answer


class SettleAgain(Scripts):
    """A repeated `complete` settles again."""

    def complete(self, task: Task, attempt: int, status: str) -> tuple[Task, bool]:
        after, published = super().complete(task, attempt, status)
        return after._replace(settled=after.settled + (after == task and published)), published


class SubmitWithoutTime(Scripts):
    """`submit` is carried out however late it comes."""

    def submit(self, task: Task, over: bool, seen: bool) -> tuple[Task, str]:
        return super().submit(task, False, seen)


class CancelSaysWhatIsAsked(Scripts):
    def cancel(self, task: Task) -> tuple[Task, str]:
        after, answer = super().cancel(task)
        return after, "cancelled" if after.status != ABSENT else answer


class LeaseWithoutReply(Scripts):
    """`lease` keeps no reply for its repetition."""

    keeps_replies = False


class IdempotencyForgotten(Scripts):
    def submit(self, task: Task, over: bool, seen: bool) -> tuple[Task, str]:
        return super().submit(task, over, False)


class NeverReap(Scripts):
    def reap(self, task: Task) -> Task:
        return task


class SuspectsStay(Scripts):
    """`put_back` forgets to free the place of a suspect, for which others wait."""

    def put_back(self, task: Task, strike: bool, alone: bool) -> Task:
        after = super().put_back(task, strike, alone)
        return after.moved(into=("isolated",)) if "isolated" in task.places else after


@pytest.mark.parametrize(
    ("scripts", "violated"),
    [
        (LeaveItQueued, "one_place"),
        (LeaveItLeased, "one_place"),
        (SuspectsStay, "one_place"),
        (CompleteUnfenced, "fenced"),
        (ReleaseUnfenced, "fenced"),
        (CompleteTwice, "one_outcome"),
        (CancelWhatEnded, "one_outcome"),
        (ReapAlwaysStrikes, "strikes_are_losses"),
        (ReleaseStrikesTwice, "strikes_are_losses"),
        (KeepTheMoney, "held_until_ended"),
        (SettleAgain, "held_until_ended"),
        (SubmitWithoutTime, "answers_are_true"),
        (CancelSaysWhatIsAsked, "answers_are_true"),
        (LeaseWithoutReply, "leases_are_heard_of"),
        (IdempotencyForgotten, "one_task_per_key"),
        (NeverReap, ALWAYS_AN_END),
    ],
)
def test_a_store_that_errs_in_one_step_is_found_out(scripts: type[Scripts], violated: str) -> None:
    found = search(TaskLife(scripts(), tasks=2 if violated == "one_task_per_key" else 1, same_key=True), mishaps=2)
    assert found.violated == violated
    assert found.trace


def test_a_violation_is_told_step_by_step_and_by_the_shortest_way() -> None:
    assert search(TaskLife(CompleteUnfenced(), tasks=1), mishaps=2).trace == (
        "client 0: submit, task 0",
        "dispatcher 0: lease, task 0, attempt 1",
        "dispatcher 0: freezes",
        "time: lease runs out, task 0",
        "time: reap, task 0",
        "dispatcher 1: lease, task 0, attempt 2",
        "dispatcher 0: thaws",
        "dispatcher 0: complete, task 0, attempt 1",
    )
