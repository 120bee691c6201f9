from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from gen_serve_bench.workload import (
    Arrival,
    Endpoint,
    Mix,
    Pattern,
    Size,
    Tenant,
    load_mix,
    notes_of_replay,
    read_trace,
    replayed,
    schedule,
    write_trace,
)

RECORDED = [
    Arrival(offset=0.0, endpoint="gen-pro", width=512, height=256, steps=4, references=1),
    Arrival(offset=2.5, endpoint="gen-3-video", tenant=1, seconds=5, tuned=True),
    Arrival(offset=4, endpoint="gen-pro", width=512, height=256, steps=4, references=1),
]


def test_poisson_arrivals_have_the_mean_rate_and_exponential_gaps() -> None:
    moments = schedule("poisson", rate=5, duration=2000, seed=1)
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert mean(gaps) == pytest.approx(0.2, rel=0.05)
    assert stdev(gaps) == pytest.approx(0.2, rel=0.05)  # of an exponential distribution, the same as its mean
    assert moments == schedule("poisson", rate=5, duration=2000, seed=1)
    assert moments != schedule("poisson", rate=5, duration=2000, seed=2)


def test_constant_arrivals_are_evenly_spaced() -> None:
    assert schedule("constant", rate=4, duration=1.5) == [0, 0.25, 0.5, 0.75, 1.0, 1.25]


@pytest.mark.parametrize(
    ("pattern", "peak", "period", "busiest"), [("bursts", 4, 40, (0, 10)), ("diurnal", 1.8, 40, (15, 25))]
)
def test_arrivals_that_swing_keep_the_mean(pattern: Pattern, peak: float, period: float, busiest: Any) -> None:
    moments = schedule(pattern, rate=5, duration=4000, seed=1, peak=peak, period=period)
    assert moments == sorted(moments)
    assert len(moments) / 4000 == pytest.approx(5, rel=0.05)
    begin, end = busiest
    there = sum(begin <= moment % period < end for moment in moments) / (4000 * (end - begin) / period)
    assert there == pytest.approx(5 * peak, rel=0.1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"pattern": "sometimes"}, "--arrivals should be one of poisson, constant, bursts, diurnal"),
        ({"rate": 0}, "the rate should be"),
        ({"peak": 2}, "poisson arrivals have no peak"),
        ({"pattern": "bursts", "peak": 1}, "the peak should be above 1"),
    ],
)
def test_what_is_no_pattern_is_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        schedule(**{"pattern": "poisson", "rate": 1.0, "duration": 10.0, **words})


def test_the_mix_that_ships_is_one(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (repository / "configs/load.yaml").read_text()
    (tmp_path / "load.yaml").write_text(text.replace("\n# tenants:", "\ntenants:").replace("\n#   ", "\n  "))
    (tmp_path / "paid.key").write_text("of paid\n")
    monkeypatch.setenv("GEN_KEY_FREE", "of free")
    assert load_mix(repository / "configs/load.yaml").requests([0.0] * 9)
    assert [each.key() for each in load_mix(tmp_path / "load.yaml").tenants] == ["of free", "of paid"]


def test_endpoints_tenants_and_shapes_come_as_they_are_weighted() -> None:
    mix = Mix(
        endpoints=[
            Endpoint(endpoint="often", weight=3, sizes=[Size(64, 64), Size(128, 64)], steps=[2, 4]),
            Endpoint(endpoint="seldom", seconds=[5]),
        ],
        tenants=[Tenant(name="loud", traffic=4), Tenant(name="quiet")],
    )
    requests = mix.requests([0.1 * n for n in range(4000)], seed=1)
    assert Counter(each.endpoint for each in requests)["often"] / 4000 == pytest.approx(0.75, abs=0.03)
    assert Counter(each.tenant for each in requests)["loud"] / 4000 == pytest.approx(0.8, abs=0.03)
    assert {each.shape for each in requests} == {each.shape for each in mix.one_of_each()}
    assert requests == mix.requests([0.1 * n for n in range(4000)], seed=1)


def test_prompts_come_from_a_list_or_a_file_beside_the_mix(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("one\n\n two \n")
    (tmp_path / "mix.yaml").write_text("prompts: prompts.txt\nendpoints: [{endpoint: a}]")
    assert {each.prompt for each in load_mix(tmp_path / "mix.yaml").requests([0.0] * 20)} == {"one", "two"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "should hold endpoints"),
        ("endpoints: [{endpoint: a, sizes: [big]}]", r"endpoints.0.sizes.0: .*WIDTHxHEIGHT"),
        ("endpoints: [{endpoint: a, wait: 1}]", "endpoints.0.wait: Extra inputs are not permitted"),
        ("tenants: [{name: a}, {name: a}]", "tenants should have different names"),
        ("tenants: [{name: a, key_env: B, key_file: c}]", "key_env and key_file can't both be given"),
        ("prompts: []", "prompts should have at least one"),
        ("prompts: nowhere.txt", "prompts: No such file or directory: "),
    ],
)
def test_mistakes_are_named_by_their_field(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "mix.yaml").write_text(text)
    with pytest.raises(ValueError, match=said):
        load_mix(tmp_path / "mix.yaml")


def test_a_replay_has_the_moments_shapes_and_tenants_that_were_recorded(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.jsonl", reversed(RECORDED))
    found = read_trace(tmp_path / "trace.jsonl")
    assert found == RECORDED
    plan = replayed(found, Mix(), "trace.jsonl", speed=2, warm_up=1, seed=1)
    assert [each.moment for each in plan.requests] == [0, 1.25, 2]
    assert [each.shape for each in plan.requests] == [each.shape for each in RECORDED]
    assert plan.weights == {"tenant 0": 1, "tenant 1": 1}
    assert plan.duration == 2  # three requests in three seconds: the last one has the mean gap, too
    tenants = Mix(tenants=[Tenant(name="a", weight=2), Tenant(name="b")])
    assert [each.tenant for each in replayed(found, tenants, "", speed=1, warm_up=0, seed=1).requests] == [
        "a",
        "b",
        "a",
    ]
    assert notes_of_replay(RECORDED, tenants, "ft_1") == []
    assert len(notes_of_replay(RECORDED, Mix(), None)) == 2
    with pytest.raises(ValueError, match="leaves nothing of a trace"):
        replayed(RECORDED, Mix(), "", speed=1, warm_up=10, seed=0)


def test_a_trace_that_is_none_is_told(tmp_path: Path) -> None:
    for line, said in (("nonsense", "line 1: the line: Invalid JSON"), ("", "holds no requests")):
        (tmp_path / "trace.jsonl").write_text(line)
        with pytest.raises(ValueError, match=said):
            read_trace(tmp_path / "trace.jsonl")
