"""Workloads, bodies, measures, goals and reports of the load generator."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from gen_serve_bench.bodies import request_body, request_path
from gen_serve_bench.goals import METRICS, NoSolo, Objective, Threshold, solo_latencies, solo_requests
from gen_serve_bench.outcomes import GeneratorRun, Outcome, WorkerStats
from gen_serve_bench.report import run_page, sweep_page, sweep_tables
from gen_serve_bench.results import Percentiles, RunResult, Sweep, Window, fairness, health, jain, summarize
from gen_serve_bench.workload import (
    Arrival,
    Endpoint,
    Load,
    LoadRequest,
    Mix,
    Pattern,
    Shape,
    Size,
    Tenant,
    load_mix,
    read_trace,
    replay,
    replay_notes,
    schedule,
    write_trace,
)
from PIL import Image
from support.load_results import MIX, make_measured, served_outcome, unserved_outcome

from serve_app.schemas import REQUESTS

RUN = [
    served_outcome(0.5, 1.0, warm_up=True, objective=2.0),
    *(served_outcome(sent, took, objective=2.0) for sent, took in ((1.0, 1.0), (1.5, 1.5), (2.0, 6.0))),
    unserved_outcome(2.0, "refused", "HTTP 429", objective=2.0),
    unserved_outcome(3.0, "failed", "Error", acknowledged=3.1, final=3.5, polls=1, objective=2.0),
    unserved_outcome(4.0, "lost", "never seen to end", acknowledged=4.1, polls=8, objective=2.0),
    unserved_outcome(4.5, "interrupted", "the run ended before it did", objective=2.0),
]
SUMMARY = summarize(RUN, Window(1.0, 5.0), {"all": 1.0})
CALM = WorkerStats(cpu=0.2, loop_lag=[0.001] * 100)
SOME = Mix(endpoints=[Endpoint(endpoint="quick"), Endpoint(endpoint="slow", steps=[4, 8])])


def test_percentiles_are_interpolated() -> None:
    percentiles = Percentiles.from_values([float(n) for n in range(100, -1, -1)])
    assert percentiles is not None
    assert percentiles.as_json() == {"n": 101, "p50": 50, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9, "max": 100}
    assert Percentiles.from_values([]) is None


def test_goodput_and_attainment_count_all_requests() -> None:
    assert (SUMMARY["goodput_per_s"], SUMMARY["requests"]) == (2 / 4, 7)
    assert SUMMARY["attainment"] == pytest.approx(2 / 6, abs=1e-4)  # refused, failed and lost ones included
    assert SUMMARY["ends"] == {"served": 3, "refused": 1, "failed": 1, "lost": 1, "interrupted": 1}
    assert (SUMMARY["refusals"], SUMMARY["failures"]) == ({"HTTP 429": 1}, {"Error": 1})


def test_throughput_counts_results_in_the_window() -> None:
    assert (SUMMARY["throughput_per_s"], SUMMARY["megapixel_steps_per_s"]) == (3 / 4, 2 * 3 / 4)
    unknown = summarize([*RUN, served_outcome(1.2, 1.0, shape=Shape())], Window(1.0, 5.0), {"all": 1.0})
    assert (unknown["megapixel_steps_per_s"], unknown["fairness"]["counted_in"]) == (None, "results")
    assert list(unknown["kinds"]) == ["gen-any, 1000x500, 4 steps", "gen-any, as the server chooses"]


def test_times_count_requests_that_reached_the_stage() -> None:
    assert SUMMARY["acknowledgement"]["n"] == 5
    assert SUMMARY["queue_wait"]["p50"] == pytest.approx(0.2)
    assert SUMMARY["service_time"]["max"] == pytest.approx(5.6)
    assert (SUMMARY["time_to_end"]["max"], SUMMARY["time_to_result"]["max"]) == (pytest.approx(5.9), 6.0)
    assert SUMMARY["polls_per_task"] == pytest.approx((3 * 3 + 1 + 8) / 5)


def test_jains_index() -> None:
    assert (jain([2, 2, 2]), jain([5, 0, 0, 0]), jain([0, 0])) == (1, 0.25, None)
    large = Shape(Size(1000, 1000), steps=4)
    run = [served_outcome(0, 1, "a", large), served_outcome(0, 1, "b"), served_outcome(1, 1, "a")]
    run.append(unserved_outcome(1, "refused", "HTTP 429", "b"))
    even = fairness(run, {"a": 3, "b": 1})
    assert (even["jain"], even["counted_in"], even["tenants"]["b"]["refused"]) == (1, "megapixel-steps", 1)
    assert fairness(run, {"a": 1, "b": 1})["jain"] == pytest.approx(8**2 / (2 * (36 + 4)))
    assert fairness(run, {"a": 1})["jain"] is None


@pytest.mark.parametrize(
    ("late", "sample", "message"),
    [
        (0.2, CALM, "1 of 100 requests was sent 0.200 s late or later (limit 0.05 s)"),
        (0.0, WorkerStats(0.97, [0.001]), "1 of 2 generator processes used 97% of a core"),
        (0.0, WorkerStats(0.2, [0.3] * 9), "1 of 100 event loop wake-ups was 0.300 s late or later"),
    ],
)
def test_slow_generator_is_reported(late: float, sample: WorkerStats, message: str) -> None:
    outcomes = [served_outcome(n, 1.0, sent=n + late) for n in range(100)]
    [limit] = health(outcomes, [CALM, sample])["limits"]
    assert limit.startswith(message)
    assert health([served_outcome(n, 1.0) for n in range(100)], [CALM])["limits"] == []


def test_solo_latency_skips_the_first_request() -> None:
    def send(request: LoadRequest) -> Outcome:
        return served_outcome(0, 60 if request.number == 0 else request.number)

    solo = solo_latencies(solo_requests(SOME.request_per_kind()), send)
    assert solo == dict.fromkeys(("quick, as the server chooses", "slow, 4 steps", "slow, 8 steps"), pytest.approx(2))
    assert list(Objective.parse("3x").seconds_by_kind(solo, solo).values()) == [pytest.approx(6)] * 3
    with pytest.raises(NoSolo, match=r"quick, .*: a request alone was refused \(HTTP 402\)"):
        solo_latencies(solo_requests(SOME.request_per_kind()), lambda _: unserved_outcome(0, "refused", "HTTP 402"))


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "5s", "0x"])
def test_invalid_objective_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--slo should be seconds"):
        Objective.parse(text)


def test_violated_threshold_is_named() -> None:
    run = make_measured(refuse=10)
    assert set(run.metrics) == set(METRICS)
    assert Threshold.parse("attainment < 0.5").violation(run.metrics) is None
    assert "attainment is 0.9" in (Threshold.parse("attainment<0.99").violation(run.metrics) or "")
    nothing = RunResult.from_run(Load(MIX, "a mix", 10).at(1), GeneratorRun(0.0))
    unmeasured = Threshold.parse("p95>10").violation(nothing.metrics) or ""
    assert "p95 could not be measured (--fail-if 'p95>10')" in unmeasured
    for text in ("p95", "speed>1", "p95>fast"):
        with pytest.raises(ValueError, match="--fail-if should be like 'p95>10', of requests, served"):
            Threshold.parse(text)


def charts(page: str) -> list[ET.Element]:
    return [ET.fromstring(base64.b64decode(svg)) for svg in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page)]


def test_run_page_is_self_contained_and_escaped() -> None:
    page = run_page(make_measured(refuse=10))
    assert not re.search(r"<script|(src|href|url\()\s*=?\s*[\"'(]?\s*(https?:)?//", page)
    assert ("<b>loud</b>" in page, "&lt;b&gt;loud&lt;/b&gt;" in page) == (False, True), "names must be escaped"
    assert ("refused: HTTP 429" in page, "the generator was the bottleneck" in page) == (True, False)
    late = run_page(make_measured(lag=0.2))
    assert late.index("the generator was the bottleneck") < late.index("within the objective")
    empty = make_measured()
    empty.outcomes.clear()
    assert [len(charts(each)) for each in (page, late, run_page(empty))] == [3, 3, 3]


def test_sweep_page_shows_its_rates() -> None:
    sweep = Sweep([make_measured(rate=5), make_measured(rate=2)], ["a note"])
    page = sweep_page(sweep)
    assert (len(charts(page)), "a note" in page) == (3, True)
    assert [row[0] for row in sweep_tables(sweep)[0].rows] == ["2", "5"]
    assert sweep_page(Sweep())


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
    assert schedule("constant", rate=4, duration=1.5) == [0, 0.25, 0.5, 0.75, 1.0, 1.25]


@pytest.mark.parametrize(
    ("pattern", "peak", "period", "busiest"), [("bursts", 4, 40, (0, 10)), ("diurnal", 1.8, 40, (15, 25))]
)
def test_bursts_and_diurnal_arrivals_keep_the_mean(pattern: Pattern, peak: float, period: float, busiest: Any) -> None:
    moments = schedule(pattern, rate=5, duration=4000, seed=1, peak=peak, period=period)
    assert moments == sorted(moments)
    assert len(moments) / 4000 == pytest.approx(5, rel=0.05)
    begin, end = busiest
    there = sum(begin <= moment % period < end for moment in moments) / (4000 * (end - begin) / period)
    assert there == pytest.approx(5 * peak, rel=0.1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"pattern": "sometimes"}, "--arrivals should be one of poisson, constant, bursts, diurnal"),
        ({"rate": 0}, "the rate should be"),
        ({"pattern": "bursts", "peak": 1}, "the peak should be above 1"),
    ],
)
def test_invalid_arrivals_are_rejected(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedule(**{"pattern": "poisson", "rate": 1.0, "duration": 10.0, **words})


def test_shipped_mix_is_valid(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (repository / "configs/load.yaml").read_text()
    (tmp_path / "load.yaml").write_text(text.replace("\n# tenants:", "\ntenants:").replace("\n#   ", "\n  "))
    (tmp_path / "paid.key").write_text("of paid\n")
    monkeypatch.setenv("GEN_KEY_FREE", "of free")
    assert load_mix(repository / "configs/load.yaml").requests([0.0] * 9)
    assert [each.key() for each in load_mix(tmp_path / "load.yaml").tenants] == ["of free", "of paid"]
    (tmp_path / "prompts.txt").write_text("one\n\n two \n")
    (tmp_path / "mix.yaml").write_text("prompts: prompts.txt\nendpoints: [{endpoint: a}]")
    assert {each.prompt for each in load_mix(tmp_path / "mix.yaml").requests([0.0] * 20)} == {"one", "two"}


def test_requests_follow_the_weights() -> None:
    often = Endpoint(endpoint="often", weight=3, sizes=[Size(64, 64), Size(128, 64)], steps=[2, 4])
    tenants = [Tenant(name="loud", traffic=4), Tenant(name="quiet")]
    mix = Mix(endpoints=[often, Endpoint(endpoint="seldom", seconds=[5])], tenants=tenants)
    requests = mix.requests([0.1 * n for n in range(4000)], seed=1)
    assert Counter(each.endpoint for each in requests)["often"] / 4000 == pytest.approx(0.75, abs=0.03)
    assert Counter(each.tenant for each in requests)["loud"] / 4000 == pytest.approx(0.8, abs=0.03)
    assert {each.shape for each in requests} == {each.shape for each in mix.request_per_kind()}
    assert requests == mix.requests([0.1 * n for n in range(4000)], seed=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "should list endpoints"),
        ("endpoints: [{endpoint: a, sizes: [big]}]", r"endpoints.0.sizes.0: .*WIDTHxHEIGHT"),
        ("endpoints: [{endpoint: a, wait: 1}]", "endpoints.0.wait: Extra inputs are not permitted"),
        ("tenants: [{name: a}, {name: a}]", "tenants should have different names"),
        ("tenants: [{name: a, key_env: B, key_file: c}]", "key_env and key_file can't both be given"),
        ("prompts: []", "prompts should have at least one"),
        ("prompts: nowhere.txt", "prompts: No such file or directory: "),
    ],
)
def test_mix_errors_name_the_field(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mix.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_mix(tmp_path / "mix.yaml")


def test_replay_has_the_recorded_requests(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.jsonl", reversed(RECORDED))
    requests = read_trace(tmp_path / "trace.jsonl")
    assert requests == RECORDED
    plan = replay(requests, Mix(), "trace.jsonl", speed=2, warm_up=1, seed=1)
    assert [each.moment for each in plan.requests] == [0, 1.25, 2]
    assert [each.shape for each in plan.requests] == [each.shape for each in RECORDED]
    assert plan.weights == {"tenant 0": 1, "tenant 1": 1}
    assert plan.duration == 2  # three requests in three seconds: the last one has the mean gap, too
    tenants = Mix(tenants=[Tenant(name="a", weight=2), Tenant(name="b")])
    shared = replay(requests, tenants, "", speed=1, warm_up=0, seed=1)
    assert [each.tenant for each in shared.requests] == ["a", "b", "a"]
    assert replay_notes(RECORDED, tenants, "ft_1") == []
    assert len(replay_notes(RECORDED, Mix(), None)) == 2
    with pytest.raises(ValueError, match="leaves nothing of a trace"):
        replay(RECORDED, Mix(), "", speed=1, warm_up=10, seed=0)


@pytest.mark.parametrize(("line", "message"), [("nonsense", "line 1: the line: Invalid"), ("", "holds no requests")])
def test_invalid_trace_is_rejected(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "trace.jsonl").write_text(line)
    with pytest.raises(ValueError, match=message):
        read_trace(tmp_path / "trace.jsonl")


def request(endpoint: str, shape: Shape, **body: object) -> LoadRequest:
    return LoadRequest(0, 0.0, endpoint, shape, "all", "a red star", 7, Size(96, 64), body)


def image_size(image: str) -> tuple[int, int]:
    return Image.open(io.BytesIO(base64.b64decode(image))).size


@pytest.mark.parametrize(
    ("endpoint", "name", "shape"),
    [
        ("gen-3-image-klein", "image-klein", Shape(Size(256, 128), steps=4, references=2)),
        ("gen-2-max", "gen2-max", Shape(Size(256, 128), steps=4, references=8)),
        ("gen-kontext-pro", "kontext", Shape(Size(1024, 512), steps=4, references=1)),
        ("gen-pro", "pro", Shape(Size(512, 256), steps=4, references=1)),
        ("gen-pro-1.0-fill", "fill", Shape(Size(256, 128), steps=15, references=1)),
        ("gen-pro-1.0-canny", "canny", Shape(Size(256, 128), steps=15, references=1)),
        ("gen-tools/erase-v1", "erase", Shape(Size(256, 128))),
        ("gen-tools/outpainting-v1", "outpainting", Shape(Size(256, 128), references=1)),
        ("gen-tools/vto-v2", "vto-v2", Shape(Size(256, 128), references=2)),
        ("gen-tools/deblur-v1", "deblur", Shape(Size(256, 128), references=1)),
        ("gen-3-video", "video", Shape(Size(1280, 704), steps=8, references=2, seconds=5)),
    ],
)
def test_generated_body_is_valid_for_its_endpoint(endpoint: str, name: str, shape: Shape) -> None:
    body = request_body(request(endpoint, shape))
    parsed = REQUESTS[name].model_validate(body)
    field_names = set(type(parsed).model_fields) | set(type(getattr(parsed, "root", parsed)).model_fields)
    assert name == "video" or set(body) <= field_names


def test_shape_determines_the_body() -> None:
    video = request_body(request("gen-3-video", Shape(Size(704, 1280), seconds=5)))
    assert (video["mode"], video["aspect_ratio"], video["resolution"], video["draft"]) == ("t2v", "9:16", "hd", False)
    fill = request_body(request("gen-pro-1.0-fill", Shape(Size(256, 128))))
    assert image_size(fill["mask"]) == image_size(fill["image"]) == (256, 128)
    outpainting = request_body(request("gen-tools/outpainting-v1", Shape(Size(256, 192))))
    assert image_size(outpainting["input_image"]) == (128, 96)
    images = request_body(request("gen-any", Shape(references=2)))["images"]
    assert [image_size(each) for each in images] == [(96, 64)] * 2
    assert request_body(request("gen-3-image-klein", Shape(steps=4), steps=2))["steps"] == 2, "further fields win"
    with pytest.raises(ValueError, match=r"gen-pro takes 1 images at most, not 2 \(references\)"):
        request_body(request("gen-pro", Shape(references=2)))


@pytest.mark.parametrize(("finetune", "path"), [(None, "/v1/gen-pro"), ("ft_1", "/v1/gen-pro-finetuned")])
def test_request_of_a_tuned_model_needs_its_id(finetune: str | None, path: str) -> None:
    tuned = request("gen-pro-finetuned", Shape(tuned=True))
    assert (request_path(tuned, finetune), request_body(tuned, finetune).get("finetune_id")) == (path, finetune)
