from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import load_plot
from benchmarks.outcomes import Outcome, figures


def ready(scheduled: float, total: float) -> Outcome:
    return Outcome(
        scheduled=scheduled,
        acknowledged=scheduled + 0.1,
        status="Ready",
        final=scheduled + total,
        started=scheduled + 0.3,
        ended=scheduled + total - 0.1,
        polls=3,
    )


REFUSED = Outcome(scheduled=2.0, refusal="HTTP 429")
FAILED = Outcome(scheduled=3.0, acknowledged=3.1, status="Error", final=3.5, polls=1)
LOST = Outcome(scheduled=4.0, acknowledged=4.1, status="Generating", polls=8)
RUN = [ready(0.0, 1.0), ready(1.0, 2.0), ready(1.5, 6.0), REFUSED, FAILED, LOST]


def test_goodput_counts_ready_tasks_within_the_objective_over_the_time_of_arrivals() -> None:
    run = figures(RUN, duration=4.0, slo=2.0)
    assert run["goodput_per_s"] == 0.5
    assert run["within_slo"] == pytest.approx(2 / 6, abs=1e-4)  # of all that arrived, refused ones included


def test_an_accepted_task_that_never_ended_is_lost_a_refused_one_is_not() -> None:
    run = figures(RUN, duration=4.0, slo=2.0)
    assert (run["arrived"], run["accepted"], run["lost"]) == (6, 5, 1)
    assert run["refused"] == {"HTTP 429": 1}
    assert run["statuses"] == {"Ready": 3, "Error": 1, "Generating": 1}


def test_times_are_taken_where_a_task_got_so_far() -> None:
    run = figures(RUN, duration=4.0, slo=2.0)
    assert run["acknowledgement"]["n"] == 5
    assert run["queue_wait"] == {"n": 3, **dict.fromkeys(("p50", "p90", "p99", "max"), pytest.approx(0.2))}
    assert run["service"]["max"] == pytest.approx(5.6)
    assert run["total"]["n"] == 4
    assert run["polls_per_task"] == pytest.approx((3 * 3 + 1 + 8) / 5)


def test_a_run_of_nothing_has_figures_too() -> None:
    run = figures([], duration=1.0, slo=1.0)
    assert run["total"] is None
    assert run["goodput_per_s"] == 0
    json.dumps(run)


def test_any_run_can_be_drawn(tmp_path: Path) -> None:
    load_plot.draw(RUN, slo=2.0, title="a run", path=tmp_path / "plots" / "run.png")
    load_plot.draw([REFUSED], slo=2.0, title="nothing accepted", path=tmp_path / "refused.png")
    assert (tmp_path / "plots" / "run.png").read_bytes().startswith(b"\x89PNG")
