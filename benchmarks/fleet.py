"""Autoscaling on a virtual clock: five loads on a fleet of up to a hundred replicas.

The profile is that of an image model on a large GPU: eight steps of a megapixel, two images per second, 90 s to load.
Replicas are simulated; the policy, Ray's delays and the scheduler are the real ones. Ray's own policy runs for
comparison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gen_serve_bench.workload import schedule
from rich.console import Console

from benchmarks.harness import Benchmark, Goal, Report
from serve_app.config.model_settings import AutoscalingSettings
from serve_app.planning.plan import Planner
from serve_app.planning.profile import ModelProfile
from serve_app.planning.simulation import SimulatedTask, SimulationResult

PROFILE: Final = ModelProfile(
    fixed_s=0.02, per_megapixel_s=0.05, encode_s=0.02, finish_s=0.05, load_s=90, max_batch=8, max_running=16
)
_STEPS: Final = 8
_CAPACITY: Final = PROFILE.max_batch / (_STEPS * PROFILE.step_s(PROFILE.max_batch))
"""Images per second of a replica."""
_BOUNDS: Final = AutoscalingSettings(min_replicas=1, max_replicas=100, upscale_delay_s=2, downscale_delay_s=120)
POLICIES: Final = {
    "seconds of work": _BOUNDS.model_copy(update={"target_wait_s": 60.0}),
    "Ray's own": _BOUNDS.model_copy(update={"target_ongoing_requests": 8.0}),
}
_JUMP_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class FleetPlan:
    replicas: float = 24.0
    """Replicas that the loads need at their peak."""
    seconds: float = 900.0


def measure(plan: FleetPlan, console: Console) -> Report:
    rows = list[dict[str, Any]]()
    for name, moments in _loads(plan).items():
        arrivals = [SimulatedTask(at, 1.0, _STEPS, f"tenant {n % 7}") for n, at in enumerate(moments)]
        for policy, scaling in POLICIES.items():
            row = {"load": name, "policy": policy, "tasks": len(arrivals)}
            rows.append(row | _describe(Planner(arrivals, PROFILE).simulate(scaling), arrivals, plan))
            console.print(" ".join(f"{key} {value}" for key, value in rows[-1].items()))
    return Report({"rows": rows}, goals(rows))


def goals(rows: Sequence[dict[str, Any]]) -> list[Goal]:
    own = [row for row in rows if row["policy"] == "seconds of work"]
    [jump] = [row for row in own if row["load"] == "jump"]
    over = max(row["overshoot"] for row in own)
    hours = max(row["gpu_hours_over_needed"] for row in own)
    return [
        Goal("fleet: from a jump to the replicas it needs", "people who wait", jump["capacity_after_s"], 105, "s"),
        Goal("fleet: most replicas over those needed, worst load", "people who pay for GPUs", over, 25, "%"),
        Goal("fleet: GPU hours over the least possible, worst load", "people who pay for GPUs", hours, 20, "%"),
    ]


def _loads(plan: FleetPlan) -> dict[str, list[float]]:
    peak, low, end = plan.replicas * _CAPACITY * 0.8, 0.5 * _CAPACITY, plan.seconds
    before = schedule("poisson", low, _JUMP_S, 1)
    ramp = [end * math.sqrt(at / end) for at in schedule("poisson", peak / 2, end, 3)]
    spike = [_JUMP_S + at for at in schedule("poisson", 4 * peak, 30, 5)]
    return {
        "steady": schedule("poisson", peak, end, 6),
        "jump": before + [_JUMP_S + at for at in schedule("poisson", peak, end, 2)],
        "ramp": ramp,
        "day": schedule("diurnal", peak / 1.8, 4 * end, 4, period=4 * end),
        "spike": sorted(before + spike + [_JUMP_S + at for at in schedule("poisson", low, end / 2, 7)]),
    }


def _describe(outcome: SimulationResult, arrivals: Sequence[SimulatedTask], plan: FleetPlan) -> dict[str, Any]:
    """Compares the fleet with the replicas needed: those that do each minute's arrivals at 80 % of their capacity."""
    needed = [0.0] * (int(arrivals[-1].at // 60) + 1)
    for task in arrivals:
        needed[int(task.at // 60)] += 1 / (60 * 0.8 * _CAPACITY)
    ordered, max_replicas = sorted(outcome.results), max(working for _, working, *_ in outcome.timeline)
    reached = [now for now, working, *_ in outcome.timeline if working >= 0.95 * plan.replicas and now >= _JUMP_S]
    minimum_s = sum(max(1.0, each) * 60 for each in needed)
    return {
        "p50_s": round(ordered[len(ordered) // 2], 2),
        "p99_s": round(ordered[int(0.99 * len(ordered))], 1),
        "capacity_after_s": round(reached[0] - _JUMP_S, 1) if reached else None,
        "most_replicas": max_replicas,
        "overshoot": round(max(0.0, 100 * (max_replicas / max(needed) - 1)), 1),
        "gpu_hours": round(outcome.replica_s / 3600, 2),
        "gpu_hours_over_needed": round(100 * (outcome.replica_s / minimum_s - 1), 1),
    }


BENCHMARK = Benchmark(
    "fleet",
    "the autoscaling policy on five loads of up to a hundred simulated replicas",
    FleetPlan(),
    FleetPlan(replicas=3, seconds=240),
    measure,
)
