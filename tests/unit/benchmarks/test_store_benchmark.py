from __future__ import annotations

import pytest

from benchmarks.store import Measured, order, report
from benchmarks.store_operations import Cost
from benchmarks.store_side import Memory


def costs(*cpu_us: float) -> list[Cost]:
    return [Cost(client_us=10 * each, cpu_us=each, inside_us=each / 2) for each in cpu_us]


def test_an_operation_is_judged_by_the_servers_cpu_time() -> None:
    found = report(
        Memory(finished=2048.4, waiting=1024.6),
        {
            "submit": Measured(costs(30, 31, 32), costs(20, 20, 20), costs(20, 21, 22)),
            "lease": Measured(costs(20, 20, 20), costs(20, 20, 20), costs(20, 20, 20)),
        },
    )
    submit, lease = found.targets
    assert not submit.met
    assert lease.met
    assert submit.measured is not None
    assert found.figures["bytes_per_task"] == {"finished": 2048, "waiting": 1025}
    told = found.figures["operations"]["submit"]
    assert told["cpu_us"]["ratio"]["median"] == pytest.approx(31 / 20)
    assert told["cpu_us"]["noise"]["median"] == pytest.approx(21 / 20)
    assert told["client_us"]["empty"]["median"] == pytest.approx(200)
    assert not found.faults


def test_every_store_is_as_often_first_as_last() -> None:
    orders = [order(["a", "b", "c"], n) for n in range(3)]
    assert [sorted(each) for each in zip(*orders, strict=True)] == [["a", "b", "c"]] * 3
