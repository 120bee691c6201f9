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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx2
from rich.console import Console

from benchmarks.benchmark import Benchmark
from benchmarks.report import Report, Target
from benchmarks.service import ENDPOINT, MODEL, UNLIMITED, Service
from serve_app.load.fairness import jain
from serve_app.load.interval import Interval
from serve_app.load.spread import Spread

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
_AT_ONCE: Final = 16
_WAITED: Final = 5
"""Service times that the small project's tasks may wait, on average, without outliving the flood."""
_GIVES_UP_S: Final = 600.0


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
    clients = {name: _Project(base_url, key) for name, key in keys.items()}
    small, flood = clients["small"], clients["flood"]
    indices: list[float] = []
    for number in range(plan.rounds):
        console.print(f"shares, round {number + 1}")
        indices.append(await _shares(small, flood, plan))
    console.print("the small one alone")
    alone = [await small.wait_of(plan.short) for _ in range(plan.waits)]
    console.print("the small one beside the flood")
    service_s = plan.long * STEP_S
    flooding = [await flood.submit(plan.long) for _ in range(_enough(plan.waits * _WAITED * service_s, plan.long))]
    beside = [await small.wait_of(plan.short) for _ in range(plan.waits)]
    still_waiting = await flood.unfinished(flooding)
    for project in clients.values():
        await project.close()
    more = [wait / service_s for wait in beside]
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
            Target("wait beside a flood, median, in service times", Interval.of_median(more), 1, "x"),
            Target("wait beside a flood, p99, in service times", busy.p99 / service_s, 1, "x"),
        ],
        faults=[] if still_waiting else ["the flood had been done before the small project's last task"],
    )


async def _shares(small: _Project, flood: _Project, plan: Plan) -> float:
    """Jain's index over the compute of what was done while both had work waiting."""
    steps = {small: plan.short, flood: plan.long}
    submitted = {
        project: [await project.submit(each) for _ in range(_enough(plan.seconds, each))]
        for project, each in steps.items()
    }
    began = time.time()
    await asyncio.sleep(plan.seconds)
    until = time.time()
    for project, ids in submitted.items():
        await project.cancel(ids)
    done = {
        project: each * sum(began <= moment <= until for moment in await project.ends(submitted[project]))
        for project, each in steps.items()
    }
    return jain(list(done.values())) or 0.0


def _enough(seconds: float, steps: int) -> int:
    """Tasks of so many steps that the model can't do in that time, even alone."""
    return round(1.5 * BATCH * seconds / (steps * STEP_S)) + 10 * BATCH


class _Project:
    """A client of one key."""

    def __init__(self, base_url: str, key: str) -> None:
        self._http = httpx2.AsyncClient(base_url=base_url, headers={"x-key": key}, timeout=60, trust_env=False)

    async def submit(self, steps: int) -> str:
        body = {"prompt": "a red star", "width": 64, "height": 64, "steps": steps, "seed": 1}
        answer = await self._http.post(f"/v1/{ENDPOINT}", json=body)
        answer.raise_for_status()
        return answer.json()["id"]

    async def wait_of(self, steps: int) -> float:
        """Seconds from the submission's answer to the start of work."""
        task_id = await self.submit(steps)
        answered, give_up = time.time(), time.monotonic() + _GIVES_UP_S
        while time.monotonic() < give_up:
            if (result := (await self._task(task_id, wait=30)).get("result")) is not None:
                return max(0.0, result["start_time"] - answered)
        raise RuntimeError(f"task {task_id} did not end")

    async def ends(self, ids: Sequence[str]) -> list[float]:
        """Epoch seconds, of those that are Ready."""
        tasks = await self._each(self._task, ids)
        return [task["result"]["end_time"] for task in tasks if task.get("result")]

    async def unfinished(self, ids: Sequence[str]) -> int:
        return sum(
            task["status"] in ("Pending", "Reasoning", "Generating") for task in await self._each(self._task, ids)
        )

    async def cancel(self, ids: Sequence[str]) -> None:
        await self._each(lambda task_id: self._http.delete(f"/v1/tasks/{task_id}"), ids)

    async def close(self) -> None:
        await self._http.aclose()

    async def _task(self, task_id: str, wait: float = 0) -> dict[str, Any]:
        answer = await self._http.get("/v1/get_result", params={"id": task_id, "wait": wait})
        answer.raise_for_status()
        return answer.json()

    async def _each(self, call: Any, ids: Sequence[str]) -> list[Any]:
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(task_id: str) -> Any:
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
