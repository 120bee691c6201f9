from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from gen_serve_bench.generator import Ran
from gen_serve_bench.goals import NoSolo, Objective, Threshold, solo_latencies, solo_requests
from gen_serve_bench.results import METRICS, Measured, Outcome, Spread, Strain, Window, fairness, figures, health, jain
from gen_serve_bench.workload import Endpoint, Load, Mix, Request, Shape, Size
from support.load_runs import MIX, measured, served, unserved

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
TOLD = figures(RUN, Window(1.0, 5.0), {"all": 1.0})
CALM = Strain(cpu=0.2, loop_lag=[0.001] * 100)
SOME = Mix(endpoints=[Endpoint(endpoint="quick"), Endpoint(endpoint="slow", steps=[4, 8])])


def test_quantiles_are_interpolated_between_neighbours() -> None:
    spread = Spread.of([float(n) for n in range(100, -1, -1)])
    assert spread is not None
    assert spread.as_json() == {"n": 101, "p50": 50, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9, "max": 100}
    assert Spread.of([]) is None


def test_goodput_and_attainment_count_what_came_in_time_of_all_that_was_asked() -> None:
    assert (TOLD["goodput_per_s"], TOLD["requests"]) == (2 / 4, 7)
    assert TOLD["attainment"] == pytest.approx(2 / 6, abs=1e-4)  # refused, failed and lost ones included
    assert TOLD["ends"] == {"served": 3, "refused": 1, "failed": 1, "lost": 1, "interrupted": 1}
    assert (TOLD["refusals"], TOLD["failures"]) == ({"HTTP 429": 1}, {"Error": 1})


def test_throughput_counts_what_came_in_the_window_whenever_it_was_asked_for() -> None:
    assert (TOLD["throughput_per_s"], TOLD["megapixel_steps_per_s"]) == (3 / 4, 2 * 3 / 4)
    unknown = figures([*RUN, served(1.2, 1.0, shape=Shape())], Window(1.0, 5.0), {"all": 1.0})
    assert (unknown["megapixel_steps_per_s"], unknown["fairness"]["counted_in"]) == (None, "results")
    assert list(unknown["kinds"]) == ["gen-any, 1000x500, 4 steps", "gen-any, as the server chooses"]


def test_times_are_taken_where_a_request_got_so_far() -> None:
    assert TOLD["acknowledgement"]["n"] == 5
    assert TOLD["queue_wait"]["p50"] == pytest.approx(0.2)
    assert TOLD["service_time"]["max"] == pytest.approx(5.6)
    assert (TOLD["time_to_end"]["max"], TOLD["time_to_result"]["max"]) == (pytest.approx(5.9), 6.0)
    assert TOLD["polls_per_task"] == pytest.approx((3 * 3 + 1 + 8) / 5)


def test_jains_index_is_one_where_all_have_the_same_and_a_share_where_one_has_all() -> None:
    assert (jain([2, 2, 2]), jain([5, 0, 0, 0]), jain([0, 0])) == (1, 0.25, None)
    large = Shape(Size(1000, 1000), steps=4)
    run = [served(0, 1, "a", large), served(0, 1, "b"), served(1, 1, "a"), unserved(1, "refused", "HTTP 429", "b")]
    even = fairness(run, {"a": 3, "b": 1})
    assert (even["jain"], even["counted_in"], even["tenants"]["b"]["refused"]) == (1, "megapixel-steps", 1)
    assert fairness(run, {"a": 1, "b": 1})["jain"] == pytest.approx(8**2 / (2 * (36 + 4)))
    assert fairness(run, {"a": 1})["jain"] is None


@pytest.mark.parametrize(
    ("late", "strain", "said"),
    [
        (0.2, CALM, "1 of 100 requests was sent 0.200 s late or later (0.05 s are borne)"),
        (0.0, Strain(0.97, [0.001]), "1 of 2 generator processes used 97% of a core"),
        (0.0, Strain(0.2, [0.3] * 9), "1 of 100 looks at the event loop found it 0.300 s late or later"),
    ],
)
def test_each_way_in_which_the_generator_falls_behind_is_told(late: float, strain: Strain, said: str) -> None:
    outcomes = [served(n, 1.0, sent=n + late) for n in range(100)]
    [limit] = health(outcomes, [CALM, strain])["limits"]
    assert limit.startswith(said)
    assert health([served(n, 1.0) for n in range(100)], [CALM])["limits"] == []


def test_each_kind_is_measured_alone_and_the_first_of_it_does_not_count() -> None:
    def send(request: Request) -> Outcome:
        return served(0, 60 if request.number == 0 else request.number)

    solo = solo_latencies(solo_requests(SOME.one_of_each()), send)
    assert solo == dict.fromkeys(("quick, as the server chooses", "slow, 4 steps", "slow, 8 steps"), pytest.approx(2))
    assert list(Objective.parsed("3x").of_kinds(solo, solo).values()) == [pytest.approx(6)] * 3
    with pytest.raises(NoSolo, match=r"quick, .*: a request alone was refused \(HTTP 402\)"):
        solo_latencies(solo_requests(SOME.one_of_each()), lambda _: unserved(0, "refused", "HTTP 402"))


def test_anything_else_is_no_objective() -> None:
    for text in ("", "x", "0", "-1", "5s", "0x"):
        with pytest.raises(ValueError, match="--slo should be seconds, like 5, or a multiple"):
            Objective.parsed(text)


def test_thresholds_name_what_crossed_them() -> None:
    run = measured(refuse=10)
    assert set(run.metrics) == set(METRICS)
    assert Threshold.parsed("attainment < 0.5").crossed(run) is None
    assert "attainment is 0.9" in (Threshold.parsed("attainment<0.99").crossed(run) or "")
    nothing = Measured.of(Load(MIX, "a mix", 10).at(1), Ran(0.0))
    assert "p95 could not be measured (--fail-if 'p95>10')" in (Threshold.parsed("p95>10").crossed(nothing) or "")
    for text in ("p95", "speed>1", "p95>fast"):
        with pytest.raises(ValueError, match="--fail-if should be like 'p95>10', of requests, served"):
            Threshold.parsed(text)


def test_rows_are_kept_as_json_and_as_csv(tmp_path: Path) -> None:
    run = measured(refuse=10)
    run.write(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    with (tmp_path / "rows.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(rows) == len(table) == len(run.outcomes)
    assert {"task_id", "size", "final"} <= rows[0].keys()
    assert [row["reason"] for row in table] == [row["reason"] for row in rows]
    assert json.loads((tmp_path / "summary.json").read_text())["figures"]["requests"] == run.figures["requests"]
