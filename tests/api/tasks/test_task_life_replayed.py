"""The scripts do what the model of them does: random ways through the model, taken again on a real server."""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable
from typing import Any, Final, cast

import pytest
from support.books import ORGANIZATION, priced_task
from support.task_life.scripts import ABSENT, SWEPT, Scripts, Task
from support.task_life.steps import ADRIFT, ARRIVES, HEARD, LOST, Call, Step, TaskLife, Work, World
from support.tasks import ALL, LANE, limited, make_due

from serve_app.accounts.credits import Credits
from serve_app.tasks import admission
from serve_app.tasks import store as task_store
from serve_app.tasks.admission import SUBMIT_S
from serve_app.tasks.limits import TooLate, TooManyActive
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import NewTask, Status

WAYS: Final = 150
STEPS: Final = 40
PRICE: Final = 5


class Replay:
    """One task on a real server, which takes the steps of the model."""

    def __init__(self, store: TaskStore, task: NewTask, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = limited(store, max_strikes=Scripts.max_strikes, max_losses=Scripts.max_losses)
        self.credits = Credits(store.redis, store.prefix)
        self.task = task
        self.calls = itertools.count()
        self.asking = ["", ""]
        """By dispatcher, the id of its latest lease; and of the one that is adrift."""
        self.adrift = ["", ""]
        self.patch = monkeypatch.setattr

    async def take(self, step: Step, before: World, after: World) -> None:
        if step.name.startswith("lease") and step.name != "lease runs out":
            await self._lease(step, before, after)
        elif step.how != ADRIFT:
            answer = await self._answer(step, before)
            assert step.how != HEARD or step.answer is None or answer == step.answer

    async def _answer(self, step: Step, before: World) -> object:
        store, task_id = self.store, self.task.id
        match step.name:
            case "submit":
                return await self._submit(before.lives[0].over)
            case "submit, and there is no room":
                self.patch(admission, "SUBMIT_S", SUBMIT_S)
                with pytest.raises(TooManyActive):
                    await limited(store, max_active=0).submit(self.task)
            case "cancel":
                code = await store.cancel(task_id, self.task.project)
                return ("no such task", "cancelled", "ended otherwise")[code]
            case "heartbeat" | "advance" | "complete" | "release":
                return await self._work(step.call)
            case "lease runs out":
                await make_due(store, f"leased:{LANE}")
                await store.redis.delete(*(f"{store.prefix}call:{call}" for call in self.asking))
            case "reap":
                assert await store.reap(LANE) == 1
            case "end_overdue":
                await make_due(store, f"deadlines:{LANE}")
                assert await store.end_overdue(LANE) == 1
            case "sweep":
                await make_due(store, "retention")
                assert await store.sweep() == [task_id]
                assert await store.sweep([task_id]) == []
        return None

    async def _submit(self, over: bool) -> str:
        self.patch(admission, "SUBMIT_S", -1.0 if over else SUBMIT_S)
        try:
            await self.store.submit(self.task)
        except TooLate:
            return "refused"
        return "accepted"

    async def _work(self, call: Call) -> bool:
        store, held = self.store, (self.task.id, call.attempt)
        match call.name:
            case "heartbeat":
                return await store.heartbeat(LANE, [held]) == []
            case "advance":
                return await store.advance(LANE, *held, Status.GENERATING)
            case "complete":
                return await store.complete(LANE, *held, Status(call.status))
            case _:
                return await store.release(LANE, *held, strike=call.strike, alone=call.alone) != 0

    async def _lease(self, step: Step, before: World, after: World) -> None:
        """Calls that are repeated have one id; of those that were given up, the reply is kept no more."""
        pairs = zip(before.dispatchers, after.dispatchers, strict=True)
        [d] = [d for d, (old, new) in enumerate(pairs) if old != new]
        dispatcher = before.dispatchers[d]
        if step.who == ARRIVES:
            if dispatcher.adrift == "given up":
                if step.name != "lease":
                    return
                await self.store.redis.delete(f"{self.store.prefix}call:{self.adrift[d]}")
            self.patch(task_store, "call_id", lambda: self.adrift[d])
            await self.store.lease(LANE, 1, ALL)
            return
        if not dispatcher.asking:
            self.asking[d] = str(next(self.calls))
        if step.how == ADRIFT:
            self.adrift[d] = self.asking[d]
            return
        self.patch(task_store, "call_id", lambda: self.asking[d])
        [lease] = await self.store.lease(LANE, 1, ALL)
        if step.how == HEARD:
            assert Work(lease.attempt, lease.isolated) == after.dispatchers[d].work[0]

    async def found(self) -> Task:
        """What the server holds, as the model words it; `run_out` and `settled` are no fields there."""
        redis, prefix, task_id = self.store.redis, self.store.prefix, self.task.id
        raw = await cast(Awaitable[dict[str, str]], redis.hgetall(f"{prefix}task:{task_id}"))
        keys = {f"{name}:{LANE}": name for name in ("queued", "suspects", "leased", "deadlines")}
        places = [
            name
            for key, name in (keys | {"retention": "retention"}).items()
            if await redis.zscore(prefix + key, task_id) is not None
        ]
        if await cast(Awaitable[int], redis.sismember(f"{prefix}isolated:{LANE}", task_id)):
            places.append("isolated")
        held = (await self.credits.balance(ORGANIZATION)).held
        assert held == int(raw.get("held", 0)) in (0, PRICE)
        fields: dict[str, Any] = {name: int(raw.get(name, 0)) for name in ("attempt", "begun", "strikes", "losses")}
        published = (int(raw["published_by"]),) if "published_by" in raw else ()
        return Task(
            raw.get("status", ABSENT),
            places=tuple(sorted(places)),
            held=held > 0,
            cancelled="cancelled" in raw,
            published=published,
            **fields,
        )


def a_way(seed: int) -> list[tuple[Step, World, World]]:
    """Steps that follow on each other until the task is swept, each with the world before and after it."""
    chance = random.Random(seed)
    life = TaskLife(Scripts(), tasks=1)
    way: list[tuple[Step, World, World]] = []
    world = life.start
    while len(way) < STEPS and world.lives[0].task.status != SWEPT:
        steps = list(life.steps(world, mishaps=True))
        [(step, after)] = chance.choices(steps, [_weight(step) for step, _ in steps])
        way.append((step, world, after))
        world = after
    return way


def _weight(step: Step) -> int:
    """Ends are put off, so that there is a life to look at."""
    if step.forced or step.name == "sweep":
        return 1
    if step.name in ("loses its worker", "release"):
        return 20
    return 3 if step.how == ADRIFT or step.name in ("complete", "dies", "freezes") else 8


@pytest.mark.slow
async def test_the_scripts_do_what_the_model_of_them_does(store: TaskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[str, str]] = set()
    for seed in range(WAYS):
        own = TaskStore(store.redis, f"{store.prefix}{seed}:")
        replay = Replay(own, priced_task(PRICE, id=f"task-{seed}"), monkeypatch)
        await replay.credits.grant(ORGANIZATION, "first", PRICE, by="test")
        words: list[str] = []
        for step, before, after in a_way(seed):
            words.append(str(step))
            taken.add((step.who if step.who == ARRIVES else step.how, step.name))
            await replay.take(step, before, after)
            modelled = after.lives[0].task._replace(run_out=False, settled=0)
            if modelled.status == SWEPT:
                modelled = Task()
            assert await replay.found() == modelled, "\n".join(words)
    calls = {"submit", "cancel", "lease", "advance", "complete", "release"}
    assert taken >= {(how, name) for how in (HEARD, LOST, ARRIVES) for name in calls}
    assert taken >= {(HEARD, name) for name in ("heartbeat", "reap", "end_overdue", "sweep")}
