"""The profile that follows from reports of replicas, and the plan that follows from a profile."""

from __future__ import annotations

import math

import pytest

from deployments.contract import counts
from deployments.contract.counts import sum_field
from serve_app.planning.plan import Objective, Planner, cheapest, draw
from serve_app.planning.profile import ModelProfile, NoMeasurements
from serve_app.planning.simulation import SimulatedTask

SIZES = (0.25, 1.0, 2.0, 8.0)


def reported(fixed_s: float, per_megapixel_s: float, sizes: tuple[float, ...] = SIZES) -> dict[str, float]:
    """Returns the sums that replicas report after ten steps of each size."""
    steps = [(size, fixed_s + per_megapixel_s * size) for size in sizes for _ in range(10)]
    return {
        counts.STEPS: len(steps),
        counts.JOBS: 10,
        counts.STEP_SIZE: sum(size for size, _ in steps),
        counts.STEP_SIZE_SQUARED: sum(size * size for size, _ in steps),
        counts.STEP_SIZE_SECONDS: sum(size * took for size, took in steps),
        sum_field(counts.STEP): 1000 * sum(took for _, took in steps),
        counts.seconds_field("encode"): 5.0,
        counts.LOADS: 2,
        counts.LOAD_S: 60,
    }


def profile_of(work: dict[str, float]) -> ModelProfile:
    return ModelProfile.from_counts(work, max_batch=8, max_running=16)


@pytest.mark.parametrize(
    ("sizes", "taken", "found"),
    [
        (SIZES, (0.02, 0.05), (0.02, 0.05)),
        (SIZES, (0.1, 0.0), (0.1, 0.0)),
        (SIZES, (0.0, 0.1), (0.0, 0.1)),
        ((1.0, 1.0), (0.02, 0.05), (0.0, 0.07)),  # steps of one size tell no fixed part
    ],
)
def test_profile_is_the_line_through_all_steps(
    sizes: tuple[float, ...], taken: tuple[float, float], found: tuple[float, float]
) -> None:
    profile = profile_of(reported(*taken, sizes))
    assert (profile.fixed_s, profile.per_megapixel_s) == pytest.approx(found)
    assert (profile.encode_s, profile.finish_s, profile.load_s) == (5.0 / 10, 0.0, 30.0)


def test_few_steps_make_no_profile() -> None:
    with pytest.raises(NoMeasurements, match="3 steps were measured"):
        profile_of(reported(0.1, 0.1) | {counts.STEPS: 3})


@pytest.mark.parametrize(("text", "seconds"), [("p99=20s", 20), ("p50<=500ms", 0.5), ("p95=2m", 120), ("p90=3", 3)])
def test_objective_is_parsed(text: str, seconds: float) -> None:
    assert Objective.parse(text) == Objective(text[:3], seconds)


@pytest.mark.parametrize("text", ["p98=3s", "p99", "p99=x", "p99=3 days"])
def test_invalid_objective_of_a_plan_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="like p99=20s"):
        Objective.parse(text)


def test_plan_finds_the_fewest_replicas_for_the_objective() -> None:
    arrivals = [SimulatedTask(0.1 * number, 1.0, 10) for number in range(2000)]
    profile = ModelProfile(fixed_s=0.0, per_megapixel_s=0.055, overhead_s=0.0)  # 5.5 replicas' worth
    planner = Planner(arrivals, profile, [Objective("p99", 2.0)], gpu_price=2.0)
    rows = planner.search_fixed(20)
    assert [(row.replicas, row.meets) for row in rows] == [("5", False), ("6", True), ("7", True)]
    best = cheapest(rows)
    assert best is not None
    assert (best.replicas, best.cost) == ("6", pytest.approx(2 * best.gpu_hours, abs=0.01))
    assert best.goodput == pytest.approx(10, rel=0.05)
    assert best.utilisation == pytest.approx(5.5 / 6, rel=0.02)
    assert "p99 at most 2 s" in draw(rows, planner.objectives)


def test_unreachable_objective_has_no_cheapest_plan() -> None:
    profile = ModelProfile(fixed_s=1.0, per_megapixel_s=0.0)
    rows = Planner([SimulatedTask(0.0, 1.0, 10)], profile, [Objective("p50", 5)]).search_fixed(3)
    assert cheapest(rows) is None
    assert all(math.isfinite(row.p50) for row in rows)
