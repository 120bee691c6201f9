"""A load run that was never made, of which it is known what came of it."""

from __future__ import annotations

import random

from serve_app.load.generator import Strain
from serve_app.load.measured import Measured
from serve_app.load.mix import Endpoint, Mix, Tenant
from serve_app.load.objective import Objective
from serve_app.load.plan import Load
from serve_app.load.run import Ran
from serve_app.load.shape import Size
from support.outcomes_of_load import served, unserved

MIX = Mix(
    endpoints=[Endpoint(endpoint="gen-any", sizes=[Size(1000, 500)], steps=[4])],
    tenants=[Tenant(name="<b>loud</b>", traffic=2), Tenant(name="quiet")],
)


def measured(
    took: float = 1.0, *, seed: int = 0, rate: float = 5.0, lag: float = 0.001, refuse: int = 0, mix: Mix = MIX
) -> Measured:
    """200 s after 10 of warm-up; results take about `took` seconds. Every `refuse`-th request is refused."""
    chance = random.Random(seed)
    plan = Load(mix, "load.yaml", "gen", "poisson", 200, 10).at(rate, seed)
    outcomes = []
    for request in plan.requests:
        if refuse and request.number % refuse == 0:
            outcome = unserved(request.moment, "refused", "HTTP 429", request.tenant)
        else:
            outcome = served(request.moment, 0.5 + took * chance.lognormvariate(0, 0.3), request.tenant)
        outcome.number = request.number
        outcomes.append(outcome)
    ran = Ran(started=1_800_000_000.0, outcomes=outcomes, strains=[Strain(0.2, [lag] * 50)])
    return Measured.of(plan, ran, Objective.parsed("3"))
