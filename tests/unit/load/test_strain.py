from __future__ import annotations

import pytest
from support.outcomes_of_load import served

from serve_app.load.generator import Strain
from serve_app.load.strain import figures

CALM = Strain(cpu=0.2, loop_lag=[0.001] * 100)


def test_a_generator_that_keeps_up_is_no_limit() -> None:
    told = figures([served(n, 1.0) for n in range(100)], [CALM, CALM])
    assert told["limits"] == []
    assert (told["cpu"], told["loop_lag_p99"], told["lateness"]["p99"]) == ([0.2, 0.2], 0.001, 0)


@pytest.mark.parametrize(
    ("late", "strain", "said"),
    [
        (0.2, CALM, "1 of 100 requests was sent 0.200 s late or later (0.05 s are borne)"),
        (0.0, Strain(0.97, [0.001]), "1 of 2 generator processes used 97% of a core"),
        (0.0, Strain(0.2, [0.3] * 9), "1 of 100 looks at the event loop found it 0.300 s late or later"),
    ],
)
def test_each_way_to_fall_behind_is_told(late: float, strain: Strain, said: str) -> None:
    outcomes = [served(n, 1.0, sent=n + late) for n in range(100)]
    [limit] = figures(outcomes, [CALM, strain])["limits"]
    assert limit.startswith(said)


def test_a_run_in_which_nothing_was_sent_has_none() -> None:
    assert figures([], [Strain(0.0, [])]) == {"lateness": None, "cpu": [0.0], "loop_lag_p99": None, "limits": []}
