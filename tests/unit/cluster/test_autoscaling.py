"""The autoscaling policy without Ray's delays and bounds, with which unit/planning simulates it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serve_app.cluster.autoscaling import Forecast, Load


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
