from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.measured_load import MIX, measured

from serve_app.load.compare import Comparison, compared
from serve_app.load.measured import ROWS, SUMMARY, Measured
from serve_app.load.mix import Endpoint, Mix
from serve_app.load.target import Target


def verdicts(found: Comparison) -> dict[str, str]:
    return {ratio.name: ratio.verdict for ratio in found.ratios}


OFTEN = {"poll_every": 0.1, "wait": 0.0, "limit": 300.0, "finetune": None}
SELDOM = OFTEN | {"poll_every": 2.0}


def test_two_runs_of_one_server_do_not_differ() -> None:
    found = compared(measured(seed=1), measured(seed=2))
    assert found.differences == ()
    assert {"time_to_result p50", "time_to_result p99", "goodput per s", "throughput per s"} <= verdicts(found).keys()
    assert set(verdicts(found).values()) == {"no difference that is more than chance"}


def test_a_slower_server_is_told_with_how_much_slower_it_is() -> None:
    found = compared(measured(seed=1), measured(seed=2, took=2.0))
    told = {ratio.name: ratio for ratio in found.ratios}
    assert told["time_to_result p50"].verdict == "longer than in the first"
    assert told["time_to_result p50"].ratio is not None
    assert told["time_to_result p50"].ratio.low < 2.5 / 1.5 < told["time_to_result p50"].ratio.high
    assert told["goodput per s"].verdict == "less than in the first"
    assert told["throughput per s"].verdict == "no difference that is more than chance"


def test_one_that_refuses_makes_less() -> None:
    told = verdicts(compared(measured(seed=1), measured(seed=2, refuse=2)))
    assert told["throughput per s"] == told["megapixel_steps per s"] == "less than in the first"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (measured(rate=10), "rate: 5.0 against 10"),
        (measured(mix=Mix(endpoints=[Endpoint(endpoint="gen-any")])), "what was sent: load.yaml as it was against"),
        (measured(lag=0.2), "the generator was the limit of the second run: 1 of 100 looks"),
    ],
)
def test_runs_that_did_other_work_are_not_compared_silently(other: Measured, said: str) -> None:
    assert any(difference.startswith(said) for difference in compared(measured(), other).differences)


def test_where_keys_are_kept_is_no_other_work() -> None:
    tenants = [tenant.model_copy(update={"key_env": "SOME"}) for tenant in MIX.tenants]
    assert compared(measured(), measured(mix=MIX.model_copy(update={"tenants": tenants}))).differences == ()


def test_a_run_is_read_from_its_folder_or_either_file(tmp_path: Path) -> None:
    run = measured()
    run.write(tmp_path)
    read = [Measured.read(path) for path in (tmp_path, tmp_path / SUMMARY, tmp_path / ROWS)]
    assert all(each.as_json() == json.loads(json.dumps(run.as_json())) | {"notes": run.notes} for each in read)
    assert read[0].outcomes[0].tenant == run.outcomes[0].tenant
    assert len(read[0].outcomes) == len(run.outcomes)


def test_without_raw_rows_nothing_is_said_of_chance(tmp_path: Path) -> None:
    measured().write(tmp_path)
    (tmp_path / ROWS).unlink()
    bare = Measured.read(tmp_path)
    found = compared(bare, bare)
    assert found.ratios
    assert {ratio.ratio for ratio in found.ratios} == {None}
    assert set(verdicts(found).values()) == {"raw rows are missing: it may be chance"}


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (SUMMARY, "{", "is no summary of a run"),
        (SUMMARY, '{"kind": "run"}', "is no summary of a run"),
        (SUMMARY, '{"kind": "sweep"}', "is of a sweep; compare takes single runs"),
        (ROWS, "{}", "line 1 is no outcome"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, file: str, text: str, said: str) -> None:
    measured().write(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=said):
        Measured.read(tmp_path)


def asked(work: dict[str, Any]) -> Measured:
    run = measured()
    return replace(run, settings={**run.settings, "work": run.settings["work"] | work})


def test_runs_that_were_polled_otherwise_did_other_work() -> None:
    assert compared(measured(), asked(SELDOM)).differences == (), "of a release that did not note it"
    assert compared(asked(OFTEN), asked(SELDOM)).differences == ("poll_every: 0.1 against 2.0",)
    assert set(OFTEN) == set(Target(base_url="http://x").work)


def test_multiples_of_what_two_servers_take_alone_are_one_objective_only_where_that_is_alike() -> None:
    first, slower, alike = (replace(measured(), solo={"any": alone}) for alone in (1.0, 10.0, 1.05))
    assert compared(first, alike).differences == ()
    assert compared(first, slower).differences == ("objective of any, alone: 1 s against 10 s",)
