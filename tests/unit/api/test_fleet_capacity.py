from __future__ import annotations

import pytest

from serve_app.api.routes.admin.fleet import WhatIf, mean_wait_s, predict_capacity


@pytest.mark.parametrize("busy", [0.0, 0.1, 0.5, 0.95])
def test_wait_follows_erlang_c(busy: float) -> None:
    assert mean_wait_s(1, busy, 4.0) == pytest.approx(busy / (1 - busy) * 4.0)
    # For M/M/2 it is S * rho^2 / (1 - rho^2).
    assert mean_wait_s(2, 0.8, 1.0) == pytest.approx(0.64 / 0.36, rel=0.05)


def test_more_replicas_shorten_the_wait() -> None:
    capacities = [predict_capacity(replicas, 0.7, 1.25, waiting=3) for replicas in (1, 2, 3)]
    assert capacities[0].busy == 0.875
    waits, drains = [each.wait_s or 0 for each in capacities], [each.drain_s or 0 for each in capacities]
    assert waits == sorted(waits, reverse=True)
    assert drains == sorted(drains, reverse=True)
    assert min(waits + drains) > 0


def test_queue_drains_beside_arriving_tasks_unless_overloaded() -> None:
    assert predict_capacity(2, 1.0, 1.5, waiting=4).drain_s == pytest.approx(4 * 1.5 / (2 - 1.5))
    for arriving in (0.5, 2.0):
        overload = WhatIf(replicas=2, busy=2 * arriving, wait_s=None, drain_s=None)
        assert predict_capacity(2, arriving, 4.0, waiting=1) == overload
