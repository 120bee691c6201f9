"""Tasks in a store by the hundred thousand, made by the store's own code and scripts.

`TaskStore` says what it would send, without a server; that goes to the server by pipelines, so nothing waits for single
answers, and every answer is checked. What is filled in differs from what a service makes in nothing but how soon after
each other its steps came.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from redis.asyncio import Redis

from serve_app.tasks.limits import Limits
from serve_app.tasks.scripts import source
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import NewTask, Status

Script: TypeAlias = Literal["submit", "lease", "advance", "complete"]

LIMITS: Final = Limits(max_queued=10**9, max_active=10**6, requests_per_s=1e6, burst=10**6, lease_s=60.0)
"""None of them is met."""
RESULT: Final = {
    "key": "results/0b5c2a52-3c8a-4c5e-9d3c-1f2e3d4c5b6a/1/picture.png",
    "prompt": "a quiet harbour at dawn, boats of many colours, long shadows, mist over the water",
    "seed": 1234567,
    "start_time": 1764000000.123,
    "end_time": 1764000002.456,
    "duration": 2.333,
}
TOGETHER: Final = 32
"""Tasks whose steps go side by side: all are submitted, then leased by one call, and so on."""
_GROUPS: Final = 8
"""Of them in a pipeline."""
_PATIENCE_S: Final = 600.0
"""How much longer than usual submissions are valid: in a pipeline the last one waits for all others."""
_ANSWERS: Final[dict[Script, Any]] = {"submit": [1, "", 0], "lease": [], "advance": 1, "complete": 1}
"""What the scripts say when all goes well; but for `lease`, whose tasks nobody works on here."""


class Misfilled(Exception):
    """The server answered a step otherwise than by doing it."""


@dataclass(frozen=True, slots=True)
class Call:
    script: Script
    arguments: tuple[Any, ...]
    """As `EVALSHA` takes them behind the digest."""


class Notebook:
    """Stands in for the server of a store: notes the calls of scripts, and has each succeed."""

    def __init__(self, now: float) -> None:
        """`now`: by the clock of the server that will get the calls, epoch seconds."""
        self.calls: list[Call] = []
        self._now = now
        self._names: dict[str, Script] = {source(name): name for name in _ANSWERS}

    def register_script(self, text: str) -> Callable[..., Awaitable[Any]]:
        name = self._names[text]

        async def call(keys: Sequence[Any], args: Sequence[Any]) -> Any:
            self.calls.append(Call(name, (len(keys), *keys, *args)))
            return _ANSWERS[name]

        return call

    async def time(self) -> tuple[int, int]:
        return int(self._now), int(self._now % 1 * 1e6)


class Filling:
    """One lane at a time, and no two of one lane at once: a lease takes what was submitted before it."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._digests = {name: hashlib.sha1(source(name).encode()).hexdigest() for name in _ANSWERS}

    async def load(self) -> None:
        """Must come before the others."""
        for name in _ANSWERS:
            await self._redis.script_load(source(name))

    async def finished(self, tasks: Sequence[NewTask]) -> None:
        """Submits these tasks of one lane, in which nothing waits, and has each end as `Ready`. Raises Misfilled."""
        await self._send(tasks, _whole_lives)

    async def waiting(self, tasks: Sequence[NewTask]) -> None:
        """Submits these tasks. Raises Misfilled."""
        await self._send(tasks, _submissions)

    async def _send(
        self, tasks: Sequence[NewTask], steps: Callable[[TaskStore, Sequence[NewTask]], Awaitable[None]]
    ) -> None:
        for start in range(0, len(tasks), TOGETHER * _GROUPS):
            seconds, micros = await cast(Awaitable[tuple[int, int]], self._redis.time())
            notebook = Notebook(seconds + micros / 1e6 + _PATIENCE_S)
            store = TaskStore(cast(Redis, notebook), self._prefix, LIMITS)
            for group in range(start, min(start + TOGETHER * _GROUPS, len(tasks)), TOGETHER):
                await steps(store, tasks[group : min(group + TOGETHER, start + TOGETHER * _GROUPS)])
            pipe = self._redis.pipeline(transaction=False)
            for call in notebook.calls:
                pipe.execute_command("EVALSHA", self._digests[call.script], *call.arguments)
            for call, answer in zip(notebook.calls, await pipe.execute(), strict=True):
                check(call, answer)


def check(call: Call, answer: Any) -> None:
    """Raises Misfilled where the step was not done, or not for all the tasks that it was for."""
    match call.script:
        case "submit":
            done = answer[0] == 1
        case "lease":
            done = len(answer) == _leased_by(call)
        case "advance" | "complete":
            done = answer == 1
    if not done:
        raise Misfilled(f"{call.script} answered {answer!r:.200}")


def _leased_by(call: Call) -> int:
    """How many tasks a call of `lease` asks for: behind keys, prefix, lane and the id of the call."""
    return call.arguments[5]


async def _submissions(store: TaskStore, tasks: Sequence[NewTask]) -> None:
    for task in tasks:
        await store.submit(task)


async def _whole_lives(store: TaskStore, tasks: Sequence[NewTask]) -> None:
    await _submissions(store, tasks)
    lane = tasks[0].lane
    await store.lease(lane, len(tasks), LIMITS.max_active)
    for task in tasks:
        await store.advance(lane, task.id, 1, Status.GENERATING, progress=0.5)
    for task in tasks:
        await store.complete(lane, task.id, 1, Status.READY, result=RESULT, cost=task.price)
