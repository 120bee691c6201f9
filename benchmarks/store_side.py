"""One of the stores that are compared: its own server, set up as the service sets up the embedded one."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis

from benchmarks.store_filling import LIMITS, Filling
from serve_app.accounts.credits import Credits
from serve_app.accounts.projects import ProjectStore
from serve_app.local.embedded_redis import EmbeddedRedis
from serve_app.redis_store.connection import connect
from serve_app.tasks.job import Job
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import NewTask

PREFIX: Final = "gen:"
_PRICE: Final = 900
_PER_ORGANIZATION: Final = 100
"""Projects."""
_ENOUGH: Final = 10**14
PAGE: Final = 20
LISTED: Final = tuple(f"listed-{n}" for n in range(8))
"""Projects with that many tasks in a lane where nothing else happens."""
_LISTED_LANE: Final = "listed"
_CHUNK: Final = 2048
"""Tasks between two reports of progress."""
_LOOK_S: Final = 0.2
_JOB: Final = Job(
    prompt="a quiet harbour at dawn, boats of many colours, long shadows, mist over the water, as a woodcut",
    seed=1234567,
    steps=4,
    output_format="png",
    area=1024 * 1024,
    width=1024,
    height=1024,
    safety_tolerance=2,
).encode()


@dataclass(slots=True)
class Side:
    name: str
    redis: Redis
    pid: int
    lanes: Sequence[str]
    projects: Sequence[str]
    chance: random.Random
    store: TaskStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = TaskStore(self.redis, PREFIX, LIMITS)

    def new_task(self, lane: str, project: str) -> NewTask:
        """As a client submits it: paid, and with an idempotency key."""
        task_id = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
        return NewTask(
            id=task_id,
            project=project,
            lane=lane,
            endpoint="gen-pro",
            job=_JOB,
            work=4.0,
            reply=json.dumps({"id": task_id, "polling_url": f"http://127.0.0.1:8000/v1/get_result?id={task_id}"}),
            organization=organization_of(project),
            price=_PRICE,
            key_id=f"key-of-{project}",
            idempotency_key=f"own-{task_id}",
            body_hash=hashlib.sha256(task_id.encode()).hexdigest(),
        )

    async def found(self) -> None:
        """Makes the projects, and gives their organizations more than enough."""
        credits, projects = Credits(self.redis, PREFIX), ProjectStore(self.redis, PREFIX)
        for organization in dict.fromkeys(map(organization_of, self._all_projects)):
            await credits.grant(organization, "first", _ENOUGH, by="benchmark")
        for start in range(0, len(self._all_projects), 64):
            made = self._all_projects[start : start + 64]
            await asyncio.gather(*(projects.create(each, organization_of(each), "benchmark") for each in made))

    async def fill(self, finished: int, waiting: int, told: Callable[[int], None]) -> Memory:
        """Fills every lane with its part of them; `told` hears how many are there more. Returns what they take.

        Then come the tasks of the projects that lists are read of, in a lane of their own: the same ones on all sides.
        """
        await self.redis.config_set("appendonly", "no")
        filling = Filling(self.redis, PREFIX)
        await filling.load()
        used = [await self._used()]
        for n, make in ((finished, filling.finished), (waiting, filling.waiting)):
            await asyncio.gather(*(self._fill_lane(i, n, make, told) for i in range(len(self.lanes))))
            await self._forget_calls()
            used.append(await self._used())
        await filling.waiting([self.new_task(_LISTED_LANE, project) for project in LISTED for _ in range(PAGE)])
        await self.redis.config_set("appendonly", "yes")
        _, after_finished, after_waiting = used
        return Memory(_each(after_finished - used[0], finished), _each(after_waiting - after_finished, waiting))

    @property
    def _all_projects(self) -> Sequence[str]:
        return (*LISTED, *self.projects)

    async def settle(self) -> None:
        """Returns when nothing goes on in the server but what it is asked for."""
        while True:
            if is_quiet(await self.redis.info("persistence"), await self.redis.info("memory")):
                return
            await asyncio.sleep(_LOOK_S)

    async def _fill_lane(self, lane: int, n: int, make: Callable[..., Any], told: Callable[[int], None]) -> None:
        numbers = range(lane, n, len(self.lanes))
        for start in range(0, len(numbers), _CHUNK):
            some = numbers[start : start + _CHUNK]
            await make([self._numbered(number) for number in some])
            told(len(some))

    def _numbered(self, n: int) -> NewTask:
        """Neighbours are of different lanes; every project has tasks in all lanes."""
        turn, lane = divmod(n, len(self.lanes))
        return self.new_task(self.lanes[lane], self.projects[turn % len(self.projects)])

    async def _forget_calls(self) -> None:
        """What leases handed out goes by itself after some time."""
        calls = [key async for key in self.redis.scan_iter(f"{PREFIX}call:*", count=10_000)]
        if calls:
            await self.redis.delete(*calls)

    async def _used(self) -> int:
        return int((await self.redis.info("memory"))["used_memory"])


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that a task takes with all that is kept of it: record, indexes, idempotency key, ledger."""

    finished: float
    waiting: float


def is_quiet(persistence: Mapping[str, Any], memory: Mapping[str, Any]) -> bool:
    """Whether no child writes the data set and no table is on its way to a larger one, by what `INFO` tells."""
    going_on = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress", "loading")
    return not any(int(persistence[name]) for name in going_on) and not int(
        memory["mem_overhead_db_hashtable_rehashing"]
    )


def _each(total: int, n: int) -> float:
    return max(0, total) / max(1, n)


def organization_of(project: str) -> str:
    return f"organization-{int(project.rpartition('-')[2]) // _PER_ORGANIZATION:04d}"


@asynccontextmanager
async def side(name: str, folder: Path, lanes: Sequence[str], projects: Sequence[str]) -> AsyncIterator[Side]:
    """With its projects and without a task."""
    server = EmbeddedRedis(folder)
    server.start()
    try:
        assert server.pid is not None
        redis = connect(server.url, timeout_s=60.0)
        async with redis:
            made = Side(name, redis, server.pid, lanes, projects, random.Random(name))
            await made.found()
            yield made
    finally:
        server.stop()
