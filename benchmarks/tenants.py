"""Two projects, one of which floods the service: what each gets of the machine, and how long the other waits.

The model is simulated: a batch of steps takes as long whatever is in it, so a task's compute is its steps. Measured:

* shares: both projects have more waiting than can be done, one of tasks four times as long as the other's. Compute of
  what each got done meanwhile, as Jain's index: 1 where both got the same, 0.5 where one got all
* waits: the small project sends one task at a time, first alone, then beside the other's flood; from the submission's
  answer to the start of work, in service times of the flood's tasks
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import httpx2
from gen_serve_bench.results import Spread, jain
from gen_serve_client import AsyncClient, Refused
from gen_serve_client.types import Status
from rich.console import Console

from benchmarks.benchmark import Benchmark
from benchmarks.interval import Interval
from benchmarks.report import Report, Target
from benchmarks.service import ENDPOINT, MODEL, UNLIMITED, Service

T = TypeVar("T")

STEP_S: Final = 0.05
BATCH: Final = 4
SETTINGS: Final = UNLIMITED | {
    f"GEN_MODELS__{MODEL}__{name}".upper(): value
    for name, value in {
        "checkpoint": f"simulated/{1000 * STEP_S:.0f}ms",
        "max_batch": str(BATCH),
        "max_running": str(2 * BATCH),
        "autoscaling__target_ongoing_requests": str(BATCH / 2),
        "autoscaling__max_replicas": "1",
    }.items()
}
BODY: Final = {"prompt": "a red star", "width": 64, "height": 64, "seed": 1}
_AT_ONCE: Final = 16
_UNDER_WAY: Final[frozenset[Status]] = frozenset({"Pending", "Reasoning", "Generating"})
_WAITED: Final = 5
"""Service times that the small project's tasks may wait, on average, without outliving the flood."""


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 5
    """Of shares."""
    seconds: float = 20
    """Of one of them."""
    short: int = 4
    """Steps of a task of the project with short tasks, which is the small one, too."""
    long: int = 16
    waits: int = 60
    """Tasks of the small project, alone and again beside the flood."""


def measure(plan: Plan, console: Console) -> Report:
    console.print("starting a service")
    with Service(SETTINGS) as service:
        keys = {name: service.key_of(name) for name in ("small", "flood")}
        return asyncio.run(_measured(service.base_url, keys, plan, console))


async def _measured(base_url: str, keys: dict[str, str], plan: Plan, console: Console) -> Report:
    async with (
        httpx2.AsyncClient(trust_env=False) as http,
        AsyncClient(base_url, keys["small"], http=http) as small,
        AsyncClient(base_url, keys["flood"], http=http) as flood,
    ):
        indices: list[float] = []
        for number in range(plan.rounds):
            console.print(f"shares, round {number + 1}")
            indices.append(await _shares(small, flood, plan))
        console.print("the small one alone")
        alone = [await _wait_of(small, plan.short) for _ in range(plan.waits)]
        console.print("the small one beside the flood")
        service_s = plan.long * STEP_S
        flooding = await _submit(flood, plan.long, _enough(plan.waits * _WAITED * service_s, plan.long))
        beside = [await _wait_of(small, plan.short) for _ in range(plan.waits)]
        still_waiting = sum(task["status"] in _UNDER_WAY for task in await _each(flood.poll, flooding))
    calm, busy = Spread.of(alone), Spread.of(beside)
    assert calm is not None
    assert busy is not None
    return Report(
        figures={
            "jain": Interval.of_median(indices).as_json(),
            "wait_alone_s": calm.as_json(),
            "wait_beside_the_flood_s": busy.as_json(),
            "service_time_of_the_flood_s": service_s,
            "flood_still_waiting": still_waiting,
        },
        targets=[
            Target("two projects' compute, Jain's index", Interval.of_median(indices), 0.95, "", at_least=True),
            Target(
                "wait beside a flood, median, in service times",
                Interval.of_median([wait / service_s for wait in beside]),
                1,
                "x",
            ),
            Target("wait beside a flood, p99, in service times", busy.p99 / service_s, 1, "x"),
        ],
        faults=[] if still_waiting else ["the flood had been done before the small project's last task"],
    )


async def _shares(small: AsyncClient, flood: AsyncClient, plan: Plan) -> float:
    """Jain's index over the compute of what was done while both had work waiting."""
    sides = ((small, plan.short), (flood, plan.long))
    ids = [await _submit(client, steps, _enough(plan.seconds, steps)) for client, steps in sides]
    began = time.time()
    await asyncio.sleep(plan.seconds)
    until = time.time()
    compute = []
    for (client, steps), submitted in zip(sides, ids, strict=True):
        await _each(partial(_cancelled, client), submitted)
        results = [task.get("result") for task in await _each(client.poll, submitted)]
        compute.append(steps * sum(began <= result["end_time"] <= until for result in results if result))
    return jain(compute) or 0.0


async def _cancelled(client: AsyncClient, task_id: str) -> None:
    with suppress(Refused):  # it ended by itself
        await client.cancel(task_id)


def _enough(seconds: float, steps: int) -> int:
    """Tasks of so many steps that the model can't do in that time, even alone."""
    return round(1.5 * BATCH * seconds / (steps * STEP_S)) + 10 * BATCH


async def _submit(client: AsyncClient, steps: int, count: int) -> list[str]:
    """One after the other, as the order is part of what is measured."""
    return [(await client.submit(ENDPOINT, BODY | {"steps": steps}))["id"] for _ in range(count)]


async def _wait_of(client: AsyncClient, steps: int) -> float:
    """Seconds from the submission's answer to the start of work."""
    [task_id] = await _submit(client, steps, 1)
    answered = time.time()
    return max(0.0, (await client.wait(task_id)).facts["start_time"] - answered)


async def _each(call: Callable[[str], Awaitable[T]], ids: Sequence[str]) -> list[T]:
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(task_id: str) -> T:
        async with limit:
            return await call(task_id)

    return list(await asyncio.gather(*map(one, ids)))


BENCHMARK = Benchmark(
    "tenants",
    "two projects, one flooding: shares of compute, and the other one's wait",
    Plan(),
    Plan(rounds=1, seconds=1.5, short=2, long=4, waits=2),
    measure,
)
