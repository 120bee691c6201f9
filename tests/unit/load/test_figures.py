from __future__ import annotations

import json

import pytest
from support.outcomes_of_load import served, unserved

from serve_app.load.figures import Window, figures
from serve_app.load.outcome import Outcome
from serve_app.load.shape import Shape

WINDOW = Window(1.0, 5.0)
RUN = [
    served(0.5, 1.0, warm_up=True, objective=2.0),
    served(1.0, 1.0, objective=2.0),
    served(1.5, 1.5, objective=2.0),
    served(2.0, 6.0, objective=2.0),
    unserved(2.0, "refused", "HTTP 429", objective=2.0),
    unserved(3.0, "failed", "Error", acknowledged=3.1, final=3.5, polls=1, objective=2.0),
    unserved(4.0, "lost", "never seen to end", acknowledged=4.1, polls=8, objective=2.0),
    unserved(4.5, "interrupted", "the run ended before it did", objective=2.0),
]
TOLD = figures(RUN, WINDOW, {"all": 1.0})


def test_goodput_and_attainment_count_what_came_in_time_of_all_that_was_asked() -> None:
    assert TOLD["goodput_per_s"] == 2 / 4
    assert TOLD["attainment"] == pytest.approx(2 / 6, abs=1e-4)  # refused, failed and lost ones included
    assert TOLD["requests"] == 7


def test_throughput_counts_what_came_in_the_window_whenever_it_was_asked_for() -> None:
    assert TOLD["throughput_per_s"] == 3 / 4
    assert TOLD["megapixel_steps_per_s"] == 2 * 3 / 4


def test_nothing_that_was_refused_counts_as_served() -> None:
    assert TOLD["ends"] == {"served": 3, "refused": 1, "failed": 1, "lost": 1, "interrupted": 1}
    assert TOLD["refusals"] == {"HTTP 429": 1}
    assert TOLD["failures"] == {"Error": 1}
    assert TOLD["lost"] == 1
    assert TOLD["time_to_result"]["n"] == 3


def test_times_are_taken_where_a_request_got_so_far() -> None:
    assert TOLD["acknowledgement"]["n"] == 5
    assert TOLD["queue_wait"]["p50"] == pytest.approx(0.2)
    assert TOLD["service_time"]["max"] == pytest.approx(5.6)
    assert TOLD["time_to_end"]["max"] == pytest.approx(5.9)
    assert TOLD["time_to_result"]["max"] == 6.0
    assert TOLD["polls_per_task"] == pytest.approx((3 * 3 + 1 + 8) / 5)


def test_work_that_is_not_known_is_not_made_up() -> None:
    told = figures([*RUN, served(1.2, 1.0, shape=Shape())], WINDOW, {"all": 1.0})
    assert told["megapixel_steps_per_s"] is None
    assert told["fairness"]["counted_in"] == "results"


def test_kinds_are_told_apart() -> None:
    told = figures([*RUN, served(1.2, 1.0, shape=Shape(), objective=0.5)], WINDOW, {"all": 1.0})
    assert list(told["kinds"]) == ["gen-any, 1000x500, 4 steps", "gen-any, as the server chooses"]
    assert told["kinds"]["gen-any, as the server chooses"]["attainment"] == 0
    assert told["kinds"]["gen-any, as the server chooses"]["objective_s"] == 0.5


def test_a_run_of_nothing_has_figures_too() -> None:
    told = figures([], Window(0, 0), {"all": 1.0})
    assert told["time_to_result"] is told["attainment"] is told["goodput_per_s"] is None
    json.dumps(told)


@pytest.mark.parametrize("outcome", RUN)
def test_an_outcome_survives_being_written(outcome: Outcome) -> None:
    assert Outcome.of_json(json.loads(json.dumps(outcome.as_json()))) == outcome
