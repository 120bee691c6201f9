"""`gen-serve plan` from options, from a trace and from reports of replicas; `gen-serve profile`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gen_serve_bench.workload import Arrival, write_trace
from redis import Redis
from support.cli_runner import GenServe

from deployments.contract import counts
from deployments.contract.counts import sum_field

MODEL = "flux3-klein"
PROFILE = '{"fixed_s": 0.0, "per_megapixel_s": 0.11, "overhead_s": 0.1, "load_s": 10, "max_batch": 1, "max_running": 2}'


@pytest.fixture
def profile(here: Path) -> tuple[str, ...]:
    (here / "profile.json").write_text(PROFILE)
    return ("--profile", "profile.json")


def test_plan_follows_the_options(gen_serve: GenServe, profile: tuple[str, ...], here: Path) -> None:
    load = ("--rate", "2", "--arrivals", "constant", "--duration", "100", "--size", "1024x1024", "--steps", "10")
    price = ("--gpu-price", "3", "--slo", "p99=3s", "--plot", "plan.svg")
    document = gen_serve("plan", MODEL, *load, *price, *profile, "--json", notes=True).json
    assert [(row["replicas"], row["meets"]) for row in document["rows"]] == [("2", False), ("3", True), ("4", True)]
    assert document["cheapest"] == "3"
    assert document["rows"][1]["p50"] == pytest.approx(1.2, abs=0.3)
    assert document["rows"][1]["cost"] == pytest.approx(3 * document["rows"][1]["gpu_hours"], abs=0.01)
    assert "p99 at most 3 s" in (here / "plan.svg").read_text()


def test_plan_compares_autoscaling_with_fixed_numbers(gen_serve: GenServe, profile: tuple[str, ...]) -> None:
    load = ("--rate", "2", "--duration", "100", "--steps", "10", "--max-replicas", "3")
    result = gen_serve("plan", MODEL, *load, *profile, "--autoscale", "1-4", "--target-wait", "20", notes=True)
    assert result.table[-1][0] == "1-4"


def test_trace_is_planned_for_one_of_its_models(gen_serve: GenServe, profile: tuple[str, ...], here: Path) -> None:
    arrivals = [
        Arrival(offset=number, endpoint=endpoint, width=1024, height=1024, steps=5)
        for number in range(30)
        for endpoint in ("gen-3-image-klein", "gen-pro")
    ]
    write_trace(here / "trace.jsonl", arrivals)
    document = gen_serve("plan", MODEL, "--trace", "trace.jsonl", *profile, "--json", notes=True).json
    [one, _] = document["rows"]
    assert (one["replicas"], one["goodput"]) == ("1", pytest.approx(1, rel=0.05))


def test_reports_of_replicas_make_a_profile(gen_serve: GenServe) -> None:
    assert gen_serve.config is not None
    store = json.loads(gen_serve.config.read_text())["redis"]
    sizes = [1.0, 2.0] * 20
    work: dict[Any, Any] = {
        counts.STEPS: 40,
        counts.JOBS: 10,
        counts.STEP_SIZE: sum(sizes),
        counts.STEP_SIZE_SQUARED: sum(size * size for size in sizes),
        counts.STEP_SIZE_SECONDS: sum(size * (0.1 + 0.2 * size) for size in sizes),
        sum_field(counts.STEP): 1000 * sum(0.1 + 0.2 * size for size in sizes),
    }
    with Redis.from_url(store["url"]) as redis:
        redis.hset(f"{store['prefix']}work:{MODEL}", mapping=work)
    used = gen_serve("plan", MODEL, "--rate", "0.5", "--duration", "20", "--json", notes=True).json["profile"]
    assert used["fixed_s"] == pytest.approx(0.1)
    assert used["per_megapixel_s"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("no-model", "--rate", "1"), "there is no model no-model"),
        ((MODEL, "--rate", "1", "--slo", "p98=1s"), "like p99=20s"),
        ((MODEL, "--rate", "1", "--arrivals", "never"), "--arrivals should be one of"),
        ((MODEL, "--rate", "1", "--duration", "10", "--autoscale", "4"), "MIN-MAX"),
    ],
)
def test_invalid_argument_of_a_plan_is_named(
    gen_serve: GenServe, profile: tuple[str, ...], words: tuple[str, ...], why: str
) -> None:
    result = gen_serve("plan", *words, *profile, notes=True)
    assert result.code == 2
    assert why in result.err


def test_profile_measures_a_model_without_a_service(
    gen_serve: GenServe, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"GEN_MODELS__{MODEL}__CHECKPOINT".upper(), "simulated/2ms")
    result = gen_serve("profile", MODEL, "-o", "klein.json", notes=True)
    assert result.code == 0
    assert result.out.startswith("klein.json: a step takes 0.00")
    assert gen_serve("plan", MODEL, "--rate", "1", "--duration", "20", "--profile", "klein.json", notes=True).code == 0
