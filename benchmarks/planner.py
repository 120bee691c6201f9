"""Accuracy of the capacity planner and of `details.eta_range`, against real runs.

For each model and mix, the benchmark first learns the profile as in production, from the reports of replicas under
load. Then the planner and the service get the same arrivals, in an open loop at three loads. On a small machine the
bundled model shares the cores with everything else; its images are large, so that few arrive per second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx2
from gen_serve_bench.adapters import Target
from gen_serve_bench.generator import WorkerLoad, generate
from gen_serve_bench.outcomes import Outcome
from gen_serve_bench.workload import Endpoint, Load, LoadRequest, Mix, Size
from redis.asyncio import Redis
from rich.console import Console

from benchmarks.harness import Benchmark, Goal, Report
from benchmarks.service import ENDPOINT, MODEL, UNLIMITED, Service
from serve_app.cli.plan import to_tasks
from serve_app.config.model_settings import AutoscalingSettings
from serve_app.planning.plan import Planner
from serve_app.planning.profile import ModelProfile
from serve_app.planning.simulation import SimulatedTask
from serve_app.tasks.reads import TaskReads

_BATCH, _RUNNING = 4, 8
_MIXES: Final = {
    "one size": Mix(endpoints=[Endpoint(endpoint=ENDPOINT, sizes=[Size(1024, 1024)], steps=[16])]),
    "mixed": Mix(endpoints=[Endpoint(endpoint=ENDPOINT, sizes=[Size(768, 768), Size(1024, 1024)], steps=[8, 16])]),
}
_MODELS: Final = {"bundled, 1 replica": (None, 1), "simulated, 2 replicas": ("simulated/250ms", 2)}


@dataclass(frozen=True, slots=True)
class PlannerPlan:
    loads: tuple[float, ...] = (0.4, 0.7, 0.9)
    """Arrival rates, as shares of the capacity that the planner predicts."""
    learn_s: float = 20.0
    run_s: float = 60.0
    watched: int = 40
    """Tasks of each run whose `eta_range` is checked."""


def measure(plan: PlannerPlan, console: Console) -> Report:
    rows, faults = list[dict[str, Any]](), list[str]()
    for model, (checkpoint, replicas) in _MODELS.items():
        settings = UNLIMITED | {
            f"GEN_MODELS__{MODEL}__MAX_BATCH".upper(): str(_BATCH),
            f"GEN_MODELS__{MODEL}__MAX_RUNNING".upper(): str(_RUNNING),
            f"GEN_MODELS__{MODEL}__AUTOSCALING_CONFIG__MIN_REPLICAS".upper(): str(replicas),
            f"GEN_MODELS__{MODEL}__AUTOSCALING_CONFIG__MAX_REPLICAS".upper(): str(replicas),
        }
        if checkpoint:
            settings[f"GEN_MODELS__{MODEL}__CHECKPOINT".upper()] = checkpoint
        for mix in _MIXES:
            console.print(f"{model}, {mix}: starting a service")
            with Service(settings) as service:
                rows += asyncio.run(_measure(service, plan, model, mix, replicas, console, faults))
    return Report({"rows": rows}, goals(rows), faults)


def goals(rows: Sequence[Mapping[str, Any]]) -> list[Goal]:
    teams = "platform teams that choose replica counts"
    held = [row["eta_held"] for row in rows if row["eta_held"] is not None]
    return [
        Goal("planner: error of p50, worst of all runs", teams, max(row["p50_error"] for row in rows), 15, "%"),
        Goal("planner: error of p99, worst of all runs", teams, max(row["p99_error"] for row in rows), 25, "%"),
        Goal("range of eta holds, least of all runs", teams, min(held, default=0.0), 75, "%", at_least=True),
    ]


async def _measure(
    service: Service, plan: PlannerPlan, model: str, mix: str, replicas: int, console: Console, faults: list[str]
) -> list[dict[str, Any]]:
    target = Target(base_url=service.base_url, keys={"all": service.key}, limit=120, poll_every=0.2, wait=10)
    await _send(target, Load(_MIXES[mix], ENDPOINT, plan.learn_s).at(3.0, seed=9).requests, faults)
    async with Redis.from_url(service.redis_url, decode_responses=True) as redis:
        await asyncio.sleep(1.5)  # until the last report has arrived
        work = await TaskReads(redis).work(MODEL)
    profile = ModelProfile.from_counts(work, max_batch=_BATCH, max_running=_RUNNING)
    scaling = AutoscalingSettings(min_replicas=replicas, max_replicas=replicas)
    capacity, rows = _capacity(profile, _MIXES[mix], scaling), list[dict[str, Any]]()
    for load in plan.loads:
        requests = Load(_MIXES[mix], ENDPOINT, plan.run_s).at(load * capacity, seed=1).requests
        predicted = Planner(_tasks(requests), profile).evaluate(scaling)
        console.print(f"{model}, {mix}: {load * capacity:.2f} tasks per second, {load:g} of the capacity")
        sending = asyncio.create_task(_send(target, requests, faults))
        await asyncio.sleep(1)
        held = await _watch_etas(service, plan, sending)
        outcomes = await sending
        latencies = sorted(each.time_to_result for each in outcomes if each.time_to_result is not None)
        row: dict[str, Any] = {"model": model, "mix": mix, "load": load, "tasks": len(latencies)}
        for name, fraction in (("p50", 0.5), ("p99", 0.99)):
            measured, expected = latencies[int(fraction * (len(latencies) - 1))], getattr(predicted, name)
            row |= {name: round(measured, 3), f"{name}_predicted": round(expected, 3)}
            row[f"{name}_error"] = round(100 * abs(expected - measured) / measured, 1)
        rows.append(row | {"eta_held": held})
        console.print(rows[-1])
    return rows


def _tasks(requests: Sequence[LoadRequest]) -> list[SimulatedTask]:
    return to_tasks(((each.moment, each.shape, "") for each in requests), default_steps=1)


def _capacity(profile: ModelProfile, mix: Mix, scaling: AutoscalingSettings) -> float:
    """Returns the tasks per second of a full queue."""
    tasks = _tasks(mix.requests([0.0] * 400))
    return len(tasks) / Planner(tasks, profile).simulate(scaling).elapsed_s


async def _send(target: Target, requests: Sequence[LoadRequest], faults: list[str]) -> list[Outcome]:
    outcomes, _ = await generate(target, WorkerLoad(requests))
    faults += ["a task did not become Ready" for each in outcomes if not each.served]
    return list(outcomes)


async def _watch_etas(service: Service, plan: PlannerPlan, sending: asyncio.Task[Any]) -> float | None:
    """Returns the percentage of tasks that ended within their first `eta_range`; None if no task had one.

    The tasks come from the whole run.
    """
    watched = dict[str, asyncio.Task[bool | None]]()
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=service.base_url, limits=limits, trust_env=False, timeout=90) as client:
        while len(watched) < plan.watched and not sending.done():
            page = await client.get("/v1/tasks", params={"active": "true", "limit": 20}, headers={"x-key": service.key})
            new = [task["id"] for task in page.json()["tasks"] if task["id"] not in watched]
            for task_id in new[:2]:  # more would come from one moment of the run
                watched[task_id] = asyncio.create_task(_range_holds(client, task_id))
            await asyncio.sleep(2 * plan.run_s / plan.watched)
        held = [each for each in await asyncio.gather(*watched.values()) if each is not None]
    return round(100 * sum(held) / len(held), 1) if held else None


async def _range_holds(client: httpx2.AsyncClient, task_id: str) -> bool | None:
    """Waits for a task's end. Returns whether that is within its present `eta_range`; None if it has none."""
    body = (await client.get("/v1/get_result", params={"id": task_id})).json()
    started_at, bounds = time.monotonic(), (body["details"] or {}).get("eta_range")
    while body["status"] in ("Pending", "Reasoning", "Generating"):
        body = (await client.get("/v1/get_result", params={"id": task_id, "wait": 60})).json()
    return bounds[0] <= time.monotonic() - started_at <= bounds[1] if bounds else None


BENCHMARK = Benchmark(
    "planner",
    "predictions of the capacity planner and of details.eta_range against real runs",
    PlannerPlan(),
    PlannerPlan(loads=(0.3,), learn_s=8, run_s=4, watched=2),
    measure,
)
