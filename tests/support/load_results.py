"""Results of made-up load test runs."""

from __future__ import annotations

import random
from typing import Any

from gen_serve_bench.goals import Objective
from gen_serve_bench.outcomes import GeneratorRun, Outcome, WorkerStats
from gen_serve_bench.results import RunResult
from gen_serve_bench.workload import Endpoint, Load, Mix, Shape, Size, Tenant

SMALL = Shape(Size(1000, 500), steps=4)
"""Two megapixel-steps."""
MIX = Mix(
    endpoints=[Endpoint(endpoint="gen-any", sizes=[Size(1000, 500)], steps=[4])],
    tenants=[Tenant(name="<b>loud</b>", traffic=2), Tenant(name="quiet")],
)


def served_outcome(intended: float, took: float, tenant: str = "all", shape: Shape = SMALL, **changes: Any) -> Outcome:
    """Returns a request that is acknowledged after 0.1 s, starts 0.2 s later, and is seen 0.1 s after its end."""
    times = {"acknowledged": 0.1, "started": 0.3, "ended": took - 0.1, "final": took}
    fields: dict[str, Any] = {name: intended + after for name, after in times.items()} | {"sent": intended, "polls": 3}
    return Outcome(0, "gen-any", shape, tenant, intended, end="served", **(fields | changes))


def unserved_outcome(intended: float, end: Any, reason: str, tenant: str = "all", **changes: Any) -> Outcome:
    return Outcome(0, "gen-any", SMALL, tenant, intended, sent=intended, end=end, reason=reason, **changes)


def make_measured(rate: float = 5.0, *, lag: float = 0.001, refuse: int = 0) -> RunResult:
    """Returns a run of 200 s after 10 s of warm-up, with results after about 1.5 s. Each `refuse`-th request fails."""
    chance = random.Random(0)
    plan = Load(MIX, "load.yaml", 200, 10).at(rate)
    outcomes = [
        unserved_outcome(each.moment, "refused", "HTTP 429", each.tenant)
        if refuse and each.number % refuse == 0
        else served_outcome(each.moment, 0.5 + chance.lognormvariate(0, 0.3), each.tenant)
        for each in plan.requests
    ]
    result = GeneratorRun(started=1_800_000_000.0, outcomes=outcomes, worker_stats=[WorkerStats(0.2, [lag] * 50)])
    return RunResult.from_run(plan, result, Objective.parse("3"))
