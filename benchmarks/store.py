"""Cost of task store calls with very many tasks, against an empty store.

Two embedded servers run at once; one is filled. They alternate through the lives of some tasks. Clients feel the
latency; the CPU time of the thread that serves all clients, by the kernel's account, bounds the tasks per second of a
service. Each round ends and sweeps as many tasks as it submits, so that the stores stay as full as they were.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from redis.asyncio import Redis
from rich.console import Console
from rich.progress import Progress

from benchmarks.harness import Benchmark, Goal, Interval, Report
from deployments.contract.moderation import Tolerance
from deployments.contract.request import ResolvedRequest
from serve_app.accounts.credits import CreditStore
from serve_app.accounts.projects import ProjectStore
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage.connection import connect
from serve_app.tasks.limits import Limits
from serve_app.tasks.payload import TaskPayload
from serve_app.tasks.result import GenerationResult
from serve_app.tasks.scripts import CancelOutcome
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease, NewTask, Status

_PREFIX: Final = "gen:"
_QUEUE, _ORGANIZATION, _PRICE, _PAGE, _TOGETHER = "model", "organization", 900, 20, 64
_LIMITS: Final = Limits(max_queued=10**9, max_active=10**6, requests_per_s=1e6, burst=10**6, lease_s=60.0)
"""Limits that the benchmark never reaches."""
_PROMPT: Final = "a quiet harbour at dawn, boats of many colours, long shadows, mist over the water, as a woodcut"
_PAYLOAD: Final = TaskPayload(
    request=ResolvedRequest(
        prompt=_PROMPT, seed=1234567, steps=4, output_format="png", area=1024 * 1024, width=1024, height=1024
    ),
    safety=Tolerance(2),
)
_RESULT: Final = GenerationResult(
    key="results/0b5c2a52-3c8a-4c5e-9d3c-1f2e3d4c5b6a/1/image.png",
    prompt=_PROMPT,
    seed=1234567,
    start_time=1764000000.123,
    end_time=1764000002.456,
    duration=2.333,
)
CLIENT_CALLS: Final = ("submit", "poll", f"page of {_PAGE}", "cancel")
"""Calls for which a client waits."""


@dataclass(frozen=True, slots=True)
class StorePlan:
    finished: int = 200_000
    waiting: int = 20_000
    projects: int = 1_000
    calls: int = 200
    """Tasks that go through each store in a round, each of another project."""
    rounds: int = 9
    """Rounds that count, after one that warms up."""


@dataclass(frozen=True, slots=True)
class CallCost:
    client_us: float
    cpu_us: float


class StoreFault(Exception):
    """The store returned a wrong answer."""


def measure(plan: StorePlan, console: Console) -> Report:
    try:
        return asyncio.run(_run(plan, console))
    except StoreFault as problem:
        return Report({}, faults=[str(problem)])


async def _run(plan: StorePlan, console: Console) -> Report:
    projects = [f"project-{n}" for n in range(plan.projects)]
    costs: dict[str, dict[str, list[CallCost]]] = {"filled": defaultdict(list), "empty": defaultdict(list)}
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gen-store-"))
        stores = {name: await stack.enter_async_context(open_store(Path(folder, name), projects)) for name in costs}
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("filling", total=plan.finished + plan.waiting)
            bytes_per_task = await stores["filled"].fill(plan, lambda n: progress.advance(bar, n))
        for number in range(plan.rounds + 1):
            for name in sorted(stores, reverse=number % 2 == 1):
                round_costs = await stores[name].run_round(random.Random(number).sample(projects, plan.calls))
                for call, cost in round_costs.items() if number else ():
                    costs[name][call].append(cost)
            console.print(f"round {number} of {plan.rounds}" if number else "warmed up")
    calls = {call: _compare(filled, costs["empty"][call]) for call, filled in costs["filled"].items()}
    return Report({"bytes_per_task": bytes_per_task, "calls": calls}, goals(calls))


def goals(calls: Mapping[str, Mapping[str, float]]) -> list[Goal]:
    felt_by = "clients: a request takes some milliseconds in all"
    first = "CPU at most 1.5 x that in an empty store (submit and cancel missed it at 1.8 x); clients feel the wait"
    return [
        Goal(f"{call} in a full store", felt_by, calls[call]["filled_client_us"] / 1000, 5, "ms", first_set=first)
        for call in CLIENT_CALLS
    ]


def _compare(full: Sequence[CallCost], empty: Sequence[CallCost]) -> dict[str, float]:
    return {
        "filled_client_us": round(median(one.client_us for one in full), 1),
        "filled_cpu_us": round(median(one.cpu_us for one in full), 1),
        "cpu_ratio": round(
            Interval.bootstrap_ratio([one.cpu_us for one in full], [one.cpu_us for one in empty]).middle, 3
        ),
    }


@dataclass(frozen=True, slots=True)
class MeasuredStore:
    """Task store with its server."""

    redis: Redis
    pid: int
    store: TaskStore
    projects: Sequence[str]

    async def set_up(self) -> None:
        """Makes the projects and gives their organization ample credits."""
        await CreditStore(self.redis, _PREFIX).grant(_ORGANIZATION, "first", 10**14, by="benchmark")
        projects = ProjectStore(self.redis, _PREFIX)
        await _in_groups(
            [lambda name=name: projects.create(name, _ORGANIZATION, "benchmark") for name in self.projects]
        )

    async def fill(self, plan: StorePlan, on_progress: Callable[[int], None]) -> dict[str, int]:
        """Fills the store. Returns the bytes per finished and per waiting task."""
        await self.redis.config_set("appendonly", "no")
        sizes = [await self._dataset_bytes()]
        for count, finish in ((plan.finished, True), (plan.waiting, False)):
            for start in range(0, count, _TOGETHER):
                tasks = [
                    new_task(self.projects[n % plan.projects]) for n in range(start, min(start + _TOGETHER, count))
                ]
                await _in_groups([lambda task=task: self.store.submit(task) for task in tasks])
                if finish:
                    await self._finish(len(tasks))
                on_progress(len(tasks))
            sizes.append(await self._dataset_bytes())
        await self.redis.config_set("appendonly", "yes")
        await self._wait_for_rewrite()
        finished, waiting = sizes[1] - sizes[0], sizes[2] - sizes[1]
        return {"finished": round(finished / plan.finished), "waiting": round(waiting / plan.waiting)}

    async def _finish(self, count: int) -> None:
        leases = await self.store.lease(_QUEUE, count, _LIMITS.max_active)
        _expect(len(leases) == count, "a lease returned too few tasks")
        await _in_groups([lambda each=each: self._advance(each) for each in leases])
        await _in_groups([lambda each=each: self._complete(each) for each in leases])

    async def _advance(self, lease: Lease) -> None:
        done = await self.store.advance(_QUEUE, lease.id, lease.attempt, Status.GENERATING, progress=0.5)
        _expect(bool(done), "an attempt had lost its lease")

    async def _complete(self, lease: Lease) -> None:
        ready = Status.READY
        done = await self.store.complete(_QUEUE, lease.id, lease.attempt, ready, result=_RESULT, cost=_PRICE)
        _expect(bool(done), "an attempt had lost its lease")

    async def _wait_for_rewrite(self) -> None:
        while True:
            if not int((await self.redis.info("persistence"))["aof_rewrite_in_progress"]):
                return
            await asyncio.sleep(0.2)

    async def run_round(self, projects: Sequence[str]) -> dict[str, CallCost]:
        """Runs a task of each project to its end, cancels another, and sweeps as many. Returns the cost by call."""
        costs, store, n = dict[str, CallCost](), self.store, len(projects)
        tasks, cancelled = ([new_task(project) for project in projects] for _ in range(2))
        answers = await self._measure(costs, "submit", [lambda task=task: store.submit(task) for task in tasks])
        _expect(all(each.created for each in answers), "a submission made no task")
        records = await self._measure(costs, "poll", [lambda task=task: store.reads.get(task.id) for task in tasks])
        _expect(all(records), "a task was not found")
        pages = [lambda name=name: store.reads.list_tasks(name, limit=_PAGE) for name in projects]
        await self._measure(costs, f"page of {_PAGE}", pages)
        batches = await self._measure(costs, "lease", [lambda: store.lease(_QUEUE, 1, _LIMITS.max_active)] * n)
        _expect(all(len(each) == 1 for each in batches), "a lease returned no task")
        leases = [each[0] for each in batches]
        await self._measure(costs, "advance", [lambda one=one: self._advance(one) for one in leases])
        await self._measure(costs, "complete", [lambda one=one: self._complete(one) for one in leases])
        await _in_groups([lambda task=task: store.submit(task) for task in cancelled])
        cancels = [lambda task=task: store.cancel(task.id, task.project) for task in cancelled]
        outcomes = await self._measure(costs, "cancel", cancels)
        _expect(set(outcomes) == {CancelOutcome.CANCELLED}, "a task was not cancelled")
        retention = f"{_PREFIX}retention"
        oldest = [str(each) for each in await self.redis.zrange(retention, 0, 2 * n - 1)]
        await self.redis.zadd(retention, dict.fromkeys(oldest, 1))
        expired = await store.sweep(limit=2 * n)
        _expect(len(expired) == 2 * n, f"the sweep found {len(expired)} of {2 * n} tasks")
        await store.sweep(expired)
        return costs

    async def _measure(self, costs: dict[str, CallCost], name: str, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Makes the calls one after the other, records their cost and returns their results."""
        answers, latencies_us, before = list[Any](), list[float](), _cpu_us(self.pid)
        for call in calls:
            started_at = time.perf_counter()
            answers.append(await call())
            latencies_us.append(1e6 * (time.perf_counter() - started_at))
        costs[name] = CallCost(median(latencies_us), (_cpu_us(self.pid) - before) / len(calls))
        return answers

    async def _dataset_bytes(self) -> int:
        return int((await self.redis.info("memory"))["used_memory_dataset"])


@asynccontextmanager
async def open_store(folder: Path, projects: Sequence[str]) -> AsyncIterator[MeasuredStore]:
    """Starts a server and opens a store with projects but without tasks."""
    server = EmbeddedRedis(folder)
    server.start()
    try:
        assert server.pid is not None
        async with connect(server.url, timeout_s=60.0) as redis:
            instance = MeasuredStore(redis, server.pid, TaskStore(redis, _PREFIX, _LIMITS), projects)
            await instance.set_up()
            yield instance
    finally:
        server.stop()


def new_task(project: str) -> NewTask:
    """Makes a task as submitted with a price and an idempotency key."""
    task_id = str(uuid.uuid4())
    return NewTask(
        id=task_id,
        project=project,
        queue=_QUEUE,
        endpoint="gen-pro",
        payload=_PAYLOAD,
        reply=json.dumps({"id": task_id, "polling_url": f"http://127.0.0.1:8000/v1/get_result?id={task_id}"}),
        organization=_ORGANIZATION,
        price=_PRICE,
        key_id=f"key-of-{project}",
        idempotency_key=f"own-{task_id}",
        body_hash=hashlib.sha256(task_id.encode()).hexdigest(),
    )


def _cpu_us(pid: int) -> float:
    """Returns the CPU time of the process' first thread, which serves all clients; exact while it waits."""
    nanoseconds, _, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return int(nanoseconds) / 1000


async def _in_groups(calls: Sequence[Callable[[], Awaitable[Any]]]) -> None:
    for start in range(0, len(calls), _TOGETHER):
        await asyncio.gather(*(call() for call in calls[start : start + _TOGETHER]))


def _expect(condition: bool, fault: str) -> None:
    if not condition:
        raise StoreFault(fault)


BENCHMARK = Benchmark(
    "store",
    "cost of each task store call with very many tasks, against an empty store",
    StorePlan(),
    StorePlan(finished=640, waiting=64, projects=32, calls=16, rounds=1),
    measure,
)
