"""What a service asks of its task store, step by step through the lives of some tasks, and what each step costs.

Whatever comes in is ended and swept again, so a store is after a turn as full as before it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from benchmarks.server_cost import Reading
from benchmarks.store_filling import LIMITS, RESULT
from benchmarks.store_side import LISTED, PAGE, PREFIX, Side
from serve_app.tasks.task import Lease, Status

_AT_ONCE: Final = 8
"""Tasks that a dispatcher leases, or holds, together."""
_PAST: Final = 1
"""Epoch ms: what is due since then is due."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a call in microseconds; of passes that take on several tasks at once, of a task."""

    client_us: float
    """What a client waits, at the median; of several tasks at once on average."""
    cpu_us: float
    """See ServerCost, as the next."""
    inside_us: float


class Wrong(Exception):
    """The store did not do what it was asked to."""


class Turn:
    """One pass over all operations on one store, each called for some `calls` tasks."""

    def __init__(self, side: Side, lane: str, projects: Sequence[str]) -> None:
        """A task for each of `projects`, in this order; none of their lanes' tasks is leased."""
        self.costs: dict[str, Cost] = {}
        self._side = side
        self._store = side.store
        self._lane = lane
        self._projects = projects

    async def take(self) -> None:
        """Raises Wrong."""
        submitted = await self._submit("submit")
        await self._lease()
        await self._finish()
        await self._read(submitted)
        await self._cancel()
        await self._idle()
        await self._end_overdue()
        await self._sweep()

    async def _submit(self, name: str | None = None) -> list[str]:
        """Ids. What is submitted in preparation is not measured, and has no name."""
        store, tasks = self._store, [self._side.new_task(self._lane, project) for project in self._projects]
        answers = await self._measure(name, [lambda task=task: store.submit(task) for task in tasks])
        _demand(all(answer.created for answer in answers), "a submission made no task")
        return [task.id for task in tasks]

    async def _lease(self) -> None:
        """One by one, after which their dispatcher is gone: they come back."""
        store, n = self._store, len(self._projects)
        leases = await self._measure("lease of 1", [lambda: store.lease(self._lane, 1, LIMITS.max_active)] * n)
        _demand(all(len(leased) == 1 for leased in leases), "a lease got nothing")
        await self._make_due("leased", [leased[0].id for leased in leases])
        (reaped,) = await self._measure("reap", [lambda: store.reap(self._lane, limit=n)], per=n)
        _demand(reaped == n, f"{reaped} of {n} were taken back")

    async def _finish(self) -> None:
        store, lane, n = self._store, self._lane, len(self._projects)
        calls = [lambda: store.lease(lane, _AT_ONCE, LIMITS.max_active)] * (n // _AT_ONCE)
        held: list[Lease] = [lease for some in await self._measure(f"lease of {_AT_ONCE}", calls) for lease in some]
        _demand(len(held) == len(calls) * _AT_ONCE, "leases got too little")
        pairs = [(lease.id, lease.attempt) for lease in held]
        groups = [pairs[start : start + _AT_ONCE] for start in range(0, len(pairs), _AT_ONCE)]
        lost = await self._measure(
            f"heartbeat of {_AT_ONCE}", [lambda group=group: store.heartbeat(lane, group) for group in groups]
        )
        _demand(not any(lost), "leases were lost")
        begun = await self._measure(
            "begin", [lambda pair=pair: store.advance(lane, *pair, Status.GENERATING, 0.0) for pair in pairs]
        )
        further = await self._measure(
            "advance",
            [lambda pair=pair: store.advance(lane, *pair, Status.GENERATING, 0.5, pace=(8, 0.2)) for pair in pairs],
        )
        completed = await self._measure(
            "complete",
            [lambda pair=pair: store.complete(lane, *pair, Status.READY, result=RESULT, cost=900) for pair in pairs],
        )
        _demand(all((*begun, *further, *completed)), "an attempt was stale")

    async def _read(self, submitted: Sequence[str]) -> None:
        store = self._store
        found = await self._measure("poll", [lambda task_id=task_id: store.get(task_id) for task_id in submitted])
        _demand(all(found), "a task was not found")
        pages = await self._measure(
            f"page of {PAGE}",
            [lambda project=project: store.list_tasks(project, limit=PAGE) for project in LISTED],
        )
        _demand(all(len(tasks) == PAGE for tasks, _ in pages), "a list was too short")
        await self._measure("counts of a lane", [lambda: store.counts(self._lane)] * len(self._projects))

    async def _cancel(self) -> None:
        submitted, store = await self._submit(), self._store
        outcomes = await self._measure(
            "cancel",
            [lambda pair=pair: store.cancel(*pair) for pair in zip(submitted, self._projects, strict=True)],
        )
        _demand(set(outcomes) == {1}, "a task was not cancelled")

    async def _idle(self) -> None:
        """What runs every moment and finds nothing to do."""
        store, lanes, times = self._store, self._side.lanes, len(self._projects)
        await self._measure("with_work, all lanes", [lambda: store.with_work(*lanes)] * times)
        passes: dict[str, Callable[[], Awaitable[Any]]] = {
            "reap": lambda: store.reap(*lanes),
            "end_overdue": lambda: store.end_overdue(*lanes),
            "sweep": store.sweep,
        }
        for name, call in passes.items():
            _demand(not any(await self._measure(f"{name}, nothing due", [call] * times)), f"{name} found something")

    async def _end_overdue(self) -> None:
        submitted, n = await self._submit(), len(self._projects)
        await self._make_due("deadlines", submitted)
        (ended,) = await self._measure("end_overdue", [lambda: self._store.end_overdue(self._lane, limit=n)], per=n)
        _demand(ended == n, f"{ended} of {n} were ended")

    async def _sweep(self) -> None:
        """The oldest, as many as came in; in an empty store these are the same."""
        retention, n = f"{PREFIX}retention", await self._ended()
        oldest = [str(task_id) for task_id in await self._side.redis.zrange(retention, 0, n - 1)]
        await self._side.redis.zadd(retention, dict.fromkeys(oldest, _PAST))
        (named,) = await self._measure("sweep: name", [lambda: self._store.sweep(limit=n)], per=n)
        _demand(len(named) == n, f"{len(named)} of {n} were named to be swept")
        await self._measure("sweep: forget", [lambda: self._store.sweep(named)], per=n)

    async def _ended(self) -> int:
        """How many of this turn have."""
        n = len(self._projects)
        return n // _AT_ONCE * _AT_ONCE + 2 * n

    async def _make_due(self, index: str, ids: Iterable[str]) -> None:
        """In place of waiting."""
        await self._side.redis.zadd(f"{PREFIX}{index}:{self._lane}", dict.fromkeys(ids, _PAST))

    async def _measure(
        self, name: str | None, calls: Sequence[Callable[[], Awaitable[Any]]], per: int = 1
    ) -> list[Any]:
        """What the calls return, made one after the other; each is for `per` tasks."""
        side, answers, waited = self._side, list[Any](), list[float]()
        before = await Reading.of(side.redis, side.pid)
        for call in calls:
            asked = time.perf_counter()
            answers.append(await call())
            waited.append(1e6 * (time.perf_counter() - asked))
        spent = before.until(await Reading.of(side.redis, side.pid))
        if name is not None:
            n = len(calls) * per
            self.costs[name] = Cost(median(waited) / per, spent.cpu_us / n, spent.inside_us / n)
        return answers


def _demand(true: bool, else_: str) -> None:
    if not true:
        raise Wrong(else_)
