"""What the policy wants by its readings; with Ray's delays and bounds around it, unit/planning simulates it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serve_app.cluster.autoscaling import Demand, Forecast


def test_one_video_holds_one_replica() -> None:
    forecast = Forecast()
    forecast.update(Demand(unit_s=1.0), 0)
    for second in range(1, 200):
        forecast.update(Demand(1, 300.0, 300.0, 1, 1.0), second)
        assert forecast.replicas(30, 8) <= 1


def test_before_anything_is_measured_tasks_are_counted_those_that_wait_too() -> None:
    forecast = Forecast()
    forecast.update(Demand(tasks=80), 0)
    assert forecast.replicas(30, 8) == 10


def test_a_faster_replica_needs_fewer() -> None:
    slow, fast = Forecast(), Forecast()
    for second in range(300):
        demand = Demand(100, 600.0, 0.0, 0, 1.0, float(second), float(second))
        slow.update(demand, second)
        fast.update(replace(demand, device_s=2.0 * second), second)
    assert slow.replicas(30, 8) == pytest.approx(20)
    assert fast.replicas(30, 8) == pytest.approx(10, rel=0.05)
