from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from support.measured_load import measured

from serve_app.load.measured import Measured
from serve_app.load.sweep import at_rates, to_the_knee


def of_server(rate: float, seed: int, lag: float = 0.001) -> Measured:
    """One that makes five a second in time, and none of them with more."""
    return measured(1.0 if rate <= 5 else 9.0, rate=rate, seed=seed, lag=lag)


def test_a_sweep_has_a_run_for_each_rate(tmp_path: Path) -> None:
    sweep = at_rates(of_server, [4, 1, 8], seed=3)
    assert [each["rate"] for each in sweep.rates()] == [1, 4, 8]
    assert [each["attainment"] > 0.9 for each in sweep.rates()] == [True, True, False]
    sweep.write(tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text())["rates"] == sweep.rates()
    assert Measured.read(tmp_path / "02-1-per-s").settings["rate"] == 1


def test_an_interrupted_run_is_the_last() -> None:
    def measure(rate: float, seed: int) -> Measured:
        return replace(of_server(rate, seed), interrupted=2.0 if rate == 2 else None)

    sweep = at_rates(measure, [1, 2, 4], seed=0)
    assert [run.settings["rate"] for run in sweep.runs] == [1, 2]
    assert sweep.notes == ["interrupted: rates that are missing were not run"]
    searched = to_the_knee(measure, 0.9, 1, seed=0)
    assert searched.knee is None
    assert searched.notes == ["interrupted before the knee was found"]


def test_the_knee_is_searched_by_runs() -> None:
    sweep = to_the_knee(of_server, 0.9, 1, seed=0)
    assert sweep.knee is not None
    assert sweep.knee.holds.per_s <= 5 < sweep.knee.fails.per_s
    assert sweep.knee.fails.per_s / sweep.knee.holds.per_s < 1.051
    assert len(sweep.runs) == len(sweep.rates())


def test_what_stands_in_the_way_of_a_knee_is_noted() -> None:
    nothing = to_the_knee(lambda rate, seed: measured(9.0, rate=1, seed=seed), 0.9, 1, seed=0)
    assert nothing.knee is None
    assert nothing.notes[0].startswith("no knee: not even")
    limited = to_the_knee(lambda rate, seed: of_server(rate, seed, lag=0.3), 0.9, 1, seed=0)
    assert limited.notes[-1].endswith("the generator was the limit: the knee may be its own")
