"""The autoscaling policy, the simulator against queueing theory, and both together."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import accumulate, pairwise
from statistics import mean

import pytest

from serve_app.cluster.autoscaling import Forecast, Load
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


@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_waits_at_one_replica_are_those_of_m_d_1(rho: float) -> None:
    """Pollaczek-Khinchine gives rho S / (2 (1 - rho)) for Poisson arrivals and constant service."""
    outcome = QueueSimulation(poisson(rho, 20_000), ALONE, replicas(1)).run()
    assert mean(outcome.waits) == pytest.approx(rho / (2 * (1 - rho)), rel=0.06)
    assert outcome.busy_s / outcome.replica_s == pytest.approx(rho, rel=0.02)


def test_more_replicas_are_less_busy() -> None:
    two, four = (QueueSimulation(poisson(1.6, 5_000), ALONE, replicas(count)).run() for count in (2, 4))
    assert mean(four.results) < mean(two.results)
    assert four.busy_s == pytest.approx(two.busy_s)
    assert four.replica_s > 1.9 * two.replica_s


def test_batch_takes_its_step_together() -> None:
    profile = ModelProfile(fixed_s=1.0, per_megapixel_s=0.0, overhead_s=0.0, max_batch=4, max_running=8)
    outcome = QueueSimulation([SimulatedTask(0.0, 1.0, 5) for _ in range(8)], profile, replicas(1)).run()
    assert outcome.busy_s == pytest.approx(10, abs=4), "forty steps alone, ten or a few more in fours"
    assert max(outcome.results) == pytest.approx(outcome.busy_s)


def test_stages_of_a_task_follow_one_another() -> None:
    profile = ModelProfile(fixed_s=0.0, per_megapixel_s=1.0, encode_s=0.5, finish_s=0.25, overhead_s=0.125)
    [took] = QueueSimulation([SimulatedTask(3.0, 2.0, 3)], profile, replicas(1)).run().results
    assert took == pytest.approx(0.5 + 6 + 0.25 + 0.125)


@pytest.mark.parametrize("least", [0, 1])
def test_burst_gets_all_replicas_after_one_load(least: int) -> None:
    scaling = AutoscalingSettings(min_replicas=least, max_replicas=20, target_wait_s=30, upscale_delay_s=0)
    burst = [SimulatedTask(0.0, 1.0, 1) for _ in range(2)]  # the policy learns the cost of work from these
    burst += [SimulatedTask(60.0, 1.0, 1) for _ in range(2000)]
    outcome = QueueSimulation(burst, ALONE, scaling).run()
    wanted = [target for now, _, target, _ in outcome.timeline if 60 <= now < 90]
    assert len(set(wanted)) <= 2, "one decision"
    assert wanted[-1] == 20
    working = {round(now): count for now, count, *_ in outcome.timeline}
    assert working[60 + 20 + 3] == 20
    assert max(outcome.results) < 60 + 20 + 2000 / 20


def test_slow_changes_of_load_do_not_flap() -> None:
    """The work rises from 2 to 14 replicas and falls again within an hour."""
    chance = random.Random(2)
    rates = (round(8 - 6 * math.cos(2 * math.pi * second / 3600)) for second in range(3600))
    moments = sorted(second + chance.random() for second, rate in enumerate(rates) for _ in range(rate))
    arrivals = [SimulatedTask(at, 1.0, 1) for at in moments]
    scaling = AutoscalingSettings(min_replicas=0, max_replicas=20, initial_replicas=3, target_wait_s=30)
    outcome = QueueSimulation(arrivals, ALONE, scaling).run()
    targets = [target for _, _, target, _ in outcome.timeline]
    turns = [b - a for a, b in pairwise(targets) if a != b]
    assert sum(1 for a, b in pairwise(turns) if a * b < 0) <= 3, "changes of direction"
    assert max(targets) <= 18
    assert outcome.results[-1] < 30


def test_idle_model_scales_to_zero() -> None:
    scaling = AutoscalingSettings(min_replicas=0, max_replicas=20, initial_replicas=1, target_wait_s=30)
    outcome = QueueSimulation([SimulatedTask(5.0, 1.0, 1) for _ in range(5)], ALONE, scaling).run(duration_s=400)
    assert outcome.timeline[-1][1:] == (0, 0, 0)


def test_tasks_of_a_lost_replica_are_repeated() -> None:
    arrivals = [SimulatedTask(2.0 * number, 1.0, 1) for number in range(2000)]
    sound, lossy = (
        QueueSimulation([replace(task) for task in arrivals], ALONE, replicas(2), losses_per_hour=losses, seed=3).run()
        for losses in (0, 20)
    )
    assert len(sound.results) == len(lossy.results) == 2000
    assert sound.busy_s == pytest.approx(2000)
    assert 2000 < lossy.busy_s < 2200
    assert max(lossy.results) > 10 * max(sound.results)


def test_tenants_share_the_queue() -> None:
    many = [SimulatedTask(0.0, 1.0, 1, "greedy") for _ in range(50)]
    outcome = QueueSimulation([*many, SimulatedTask(0.5, 1.0, 1, "modest")], ALONE, replicas(1)).run()
    assert outcome.results[-1] < 4


def test_one_task_needs_at_most_one_replica() -> None:
    forecast = Forecast()
    forecast.update(Load(unit_s=1.0), 0)
    for second in range(1, 200):
        forecast.update(Load(1, 300.0, 300.0, 1, 1.0), second)
        assert forecast.replicas(30, 8) <= 1


def test_unmeasured_queue_scales_on_waiting_and_running_tasks() -> None:
    forecast = Forecast()
    forecast.update(Load(tasks=80), 0)
    assert forecast.replicas(30, 8) == 10


def test_faster_replicas_are_fewer() -> None:
    slow, fast = Forecast(), Forecast()
    for second in range(300):
        load = Load(100, 600.0, 0.0, 0, 1.0, float(second), float(second))
        slow.update(load, second)
        fast.update(replace(load, device_s=2.0 * second), second)
    assert slow.replicas(30, 8) == pytest.approx(20)
    assert fast.replicas(30, 8) == pytest.approx(10, rel=0.05)
