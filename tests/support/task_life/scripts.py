"""The scripts of the task store as functions on records, named as the files in `serve_app/tasks`."""

from __future__ import annotations

from typing import NamedTuple

ABSENT, PENDING, GENERATING, READY, ERROR, SWEPT = "absent", "Pending", "Generating", "Ready", "Error", "swept"
ENDED = (READY, ERROR)
WAITING = ("queued", "suspects")


class Task(NamedTuple):
    """What the store knows of a task. `places` are the indexes that name it, sorted."""

    status: str = ABSENT
    attempt: int = 0
    begun: int = 0
    strikes: int = 0
    losses: int = 0
    places: tuple[str, ...] = ()
    run_out: bool = False
    """Its lease did."""
    held: bool = False
    cancelled: bool = False
    published: tuple[int, ...] = ()
    """The attempts that did, one for each time."""
    settled: int = 0

    def moved(self, *, out: tuple[str, ...] = (), into: tuple[str, ...] = (), **changes: object) -> Task:
        places = tuple(sorted({*self.places, *into} - {*out}))
        return self._replace(places=places, **changes)  # type: ignore[arg-type]


class Scripts:
    """One function per script of the store: the record after it, and the answer."""

    max_strikes = 2
    max_losses = 3

    def submit(self, task: Task, over: bool, seen: bool) -> tuple[Task, str]:
        """`over`: its time is. `seen`: its idempotency key was, with another id."""
        if seen:
            return task, "repeated"
        if task.status not in (ABSENT, SWEPT):
            return task, "accepted"
        if over:
            return task, "refused"
        return Task(PENDING, held=True).moved(into=("queued", "deadlines")), "accepted"

    def lease(self, task: Task) -> Task:
        if task.status != PENDING:
            return task.moved(out=WAITING)
        into = ("isolated", "leased") if "suspects" in task.places else ("leased",)
        return task.moved(out=WAITING, into=into, attempt=task.attempt + 1, run_out=False)

    keeps_replies = True

    def heartbeat(self, task: Task, attempt: int) -> tuple[Task, bool]:
        if task.attempt != attempt or "leased" not in task.places:
            return task, False
        return task._replace(run_out=False), True

    def advance(self, task: Task, attempt: int) -> tuple[Task, bool]:
        if task.attempt != attempt or "leased" not in task.places:
            return task, False
        return task._replace(status=GENERATING, begun=attempt), True

    def complete(self, task: Task, attempt: int, status: str) -> tuple[Task, bool]:
        if task.attempt != attempt or task.status in (ABSENT, SWEPT):
            return task, False
        if task.status in ENDED:
            return task, task.published[-1:] == (attempt,)
        return self.finish(task._replace(published=(*task.published, attempt)), status), True

    def release(self, task: Task, attempt: int, strike: bool, alone: bool) -> tuple[Task, bool]:
        if task.attempt != attempt or "leased" not in task.places:
            return task, False
        return self.put_back(task, strike, alone), True

    def cancel(self, task: Task) -> tuple[Task, str]:
        if task.status in (ABSENT, SWEPT):
            return task, "no such task"
        if task.status in ENDED:
            return task, "cancelled" if task.cancelled else "ended otherwise"
        return self.finish(task._replace(cancelled=True), ERROR), "cancelled"

    def end_overdue(self, task: Task) -> Task:
        return self.finish(task, ERROR)

    def reap(self, task: Task) -> Task:
        return self.put_back(task, task.begun == task.attempt, alone=False)

    def sweep(self, task: Task) -> Task:
        return Task(SWEPT, settled=task.settled)

    def finish(self, task: Task, status: str) -> Task:
        out = ("queued", "suspects", "isolated", "leased", "deadlines")
        settled = task.settled + 1
        return task.moved(out=out, into=("retention",), status=status, run_out=False, held=False, settled=settled)

    def put_back(self, task: Task, strike: bool, alone: bool) -> Task:
        strikes, losses = task.strikes, task.losses
        if strike:
            losses += 1
            strikes += 1
            if strikes >= self.max_strikes and not alone:
                strikes = self.max_strikes - 1
        task = task._replace(strikes=strikes, losses=losses)
        if strikes >= self.max_strikes or losses >= self.max_losses:
            return self.finish(task, ERROR)
        waits = "suspects" if strikes >= self.max_strikes - 1 else "queued"
        return task.moved(out=("isolated", "leased"), into=(waits,), status=PENDING, run_out=False)
