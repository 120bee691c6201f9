"""The simulator against queueing theory, and its replicas under the autoscaling policy."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import accumulate, pairwise
from statistics import mean

import pytest

from serve_app.config.model_settings import AutoscalingSettings
from serve_app.planning.profile import ModelProfile
from serve_app.planning.simulation import QueueSimulation, SimulatedTask

ALONE = ModelProfile(fixed_s=0.0, per_megapixel_s=1.0, overhead_s=0.0, load_s=20.0)
"""A task of one megapixel and one step takes a second."""


def poisson(rate: float, count: int, seed: int = 1) -> list[SimulatedTask]:
    chance = random.Random(seed)
    return [SimulatedTask(at, 1.0, 1) for at in accumulate(chance.expovariate(rate) for _ in range(count))]


def replicas(count: int) -> AutoscalingSettings:
    return AutoscalingSettings(min_replicas=count, max_replicas=count)


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_one_replica_waits_as_m_d_1(rho: float) -> None:
    """Pollaczek-Khinchine: of Poisson arrivals and constant service, rho S / (2 (1 - rho))."""
    outcome = QueueSimulation(poisson(rho, 40_000), ALONE, replicas(1)).run()
    assert mean(outcome.waits) == pytest.approx(rho / (2 * (1 - rho)), rel=0.06)
    assert outcome.busy_s / outcome.replica_s == pytest.approx(rho, rel=0.02)


def test_more_replicas_are_busier_less() -> None:
    two, four = (QueueSimulation(poisson(1.6, 5_000), ALONE, replicas(count)).run() for count in (2, 4))
    assert mean(four.results) < mean(two.results)
    assert four.busy_s == pytest.approx(two.busy_s)
    assert four.replica_s > 1.9 * two.replica_s


def test_a_batch_takes_its_step_together() -> None:
    profile = ModelProfile(fixed_s=1.0, per_megapixel_s=0.0, overhead_s=0.0, max_batch=4, max_running=8)
    outcome = QueueSimulation([SimulatedTask(0.0, 1.0, 5) for _ in range(8)], profile, replicas(1)).run()
    assert outcome.busy_s == pytest.approx(10, abs=4), "forty steps alone, ten or a few more in fours"
    assert max(outcome.results) == pytest.approx(outcome.busy_s)


def test_stages_follow_one_another() -> None:
    profile = ModelProfile(fixed_s=0.0, per_megapixel_s=1.0, encode_s=0.5, finish_s=0.25, overhead_s=0.125)
    [took] = QueueSimulation([SimulatedTask(3.0, 2.0, 3)], profile, replicas(1)).run().results
    assert took == pytest.approx(0.5 + 6 + 0.25 + 0.125)


@pytest.mark.parametrize("least", [0, 1])
def test_a_burst_gets_all_replicas_after_one_load(least: int) -> None:
    scaling = AutoscalingSettings(min_replicas=least, max_replicas=20, target_wait_s=30, upscale_delay_s=0)
    burst = [SimulatedTask(0.0, 1.0, 1) for _ in range(2)]  # what work takes is seen from these
    burst += [SimulatedTask(60.0, 1.0, 1) for _ in range(2000)]
    outcome = QueueSimulation(burst, ALONE, scaling).run()
    wanted = [target for now, _, target, _ in outcome.timeline if 60 <= now < 90]
    assert len(set(wanted)) <= 2, "one decision"
    assert wanted[-1] == 20
    working = {round(now): count for now, count, *_ in outcome.timeline}
    assert working[60 + 20 + 3] == 20
    assert max(outcome.results) < 60 + 20 + 2000 / 20


def test_a_day_of_slow_changes_does_not_flap() -> None:
    """Between 2 and 14 replicas' worth of work, up and down in two hours."""
    chance = random.Random(2)
    arrivals = [
        SimulatedTask(second + chance.random(), 1.0, 1)
        for second in range(7200)
        for _ in range(round(8 - 6 * math.cos(2 * math.pi * second / 7200)))
    ]
    arrivals.sort(key=lambda task: task.at)
    scaling = AutoscalingSettings(min_replicas=0, max_replicas=20, initial_replicas=3, target_wait_s=30)
    outcome = QueueSimulation(arrivals, ALONE, scaling).run()
    targets = [target for _, _, target, _ in outcome.timeline]
    turns = [b - a for a, b in pairwise(targets) if a != b]
    assert sum(1 for a, b in pairwise(turns) if a * b < 0) <= 3, "changes of direction"
    assert max(targets) <= 18
    assert outcome.results[-1] < 30


def test_a_model_that_nobody_asks_for_ends_at_zero() -> None:
    scaling = AutoscalingSettings(min_replicas=0, max_replicas=20, initial_replicas=1, target_wait_s=30)
    outcome = QueueSimulation([SimulatedTask(5.0, 1.0, 1) for _ in range(5)], ALONE, scaling).run(duration_s=400)
    assert outcome.timeline[-1][1:] == (0, 0, 0)


def test_what_a_lost_replica_had_begun_is_done_by_another() -> None:
    arrivals = [SimulatedTask(2.0 * number, 1.0, 1) for number in range(2000)]
    sound, lossy = (
        QueueSimulation([replace(task) for task in arrivals], ALONE, replicas(2), losses_per_hour=losses, seed=3).run()
        for losses in (0, 20)
    )
    assert len(sound.results) == len(lossy.results) == 2000
    assert sound.busy_s == pytest.approx(2000)
    assert 2000 < lossy.busy_s < 2200
    assert max(lossy.results) > 10 * max(sound.results)


def test_tenants_share_though_one_came_first() -> None:
    many = [SimulatedTask(0.0, 1.0, 1, "greedy") for _ in range(50)]
    outcome = QueueSimulation([*many, SimulatedTask(0.5, 1.0, 1, "modest")], ALONE, replicas(1)).run()
    assert outcome.results[-1] < 4
