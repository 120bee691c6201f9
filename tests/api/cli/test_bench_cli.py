"""`gen-serve bench` on a scripted server."""

from __future__ import annotations

import csv
import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gen_serve_bench.workload import Arrival, read_trace, write_trace
from support.cli_runner import GenServe
from support.http_service import Service, serving
from support.scripted_server import Act, ScriptedServer

from serve_app.cli import bench

ONE = ("--endpoint", "gen-any", "--size", "512x512", "--steps", "4")
EVERY_50_MS = ("--arrivals", "constant", "--rate", "20", *ONE)


@contextmanager
def scripted_server(*acts: Act) -> Iterator[tuple[ScriptedServer, tuple[str, ...]]]:
    """Yields a server, and the options that name it and the output folder."""
    server = ScriptedServer(*acts)
    with serving(server.app) as base_url:
        yield server, ("--base-url", base_url, "--key", "secret", "--poll-every", "0.02", "-o", "out")


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


def test_run_reports_every_request(gen_serve: GenServe, here: Path) -> None:
    with scripted_server("serve", "refuse", "serve", "moderate", "no result") as (server, where):
        result = gen_serve("bench", "run", *EVERY_50_MS, "--duration", "1", "--warm-up", "0.5", *where, "--json")
    assert result.code == 0
    summary = result.json["figures"]
    requests = rows(here / "out")
    counted = Counter(each["end"] for each in requests if not each["warm_up"])
    assert (len(server.bodies), len(requests), summary["requests"]) == (30, 30, 20)
    assert Counter(each["end"] for each in requests) == {"served": 12, "refused": 6, "failed": 12}
    assert summary["ends"] == dict(counted)
    assert set(summary["failures"]) == {"Content Moderated", "unusable answer: Ready without a result"}
    assert summary["attainment"] == round(counted["served"] / 20, 4)
    assert summary["goodput_per_s"] == counted["served"]
    assert json.loads((here / "out" / "summary.json").read_text()) == result.json
    with (here / "out" / "rows.csv").open() as file:
        assert [row["reason"] for row in csv.DictReader(file)] == [row["reason"] for row in requests]
    for name in ("report.html", "rows.jsonl", "rows.csv", "summary.json"):
        assert "secret" not in (here / "out" / name).read_text()


def test_violated_threshold_of_a_closed_loop_exits_with_1(gen_serve: GenServe, here: Path) -> None:
    loop = ("--concurrency", "4", "--num-requests", "20", "--fail-if", "p95>60", "--fail-if", "attainment<0.99")
    with scripted_server("serve", "refuse") as (server, where):
        result = gen_serve("bench", "run", *ONE, *loop, *where)
    assert len(server.bodies) == 20
    assert result.code == 1
    assert result.err == "error: gen-any, 4 at a time: attainment is 0.5 (--fail-if 'attainment<0.99')\n"
    assert ["attainment", "0.5"] in result.table
    assert result.out.endswith("report: out/report.html\n")


@pytest.mark.slow
def test_sweep_has_a_row_and_a_folder_per_rate(gen_serve: GenServe, here: Path) -> None:
    with scripted_server("serve") as (_, where):
        words = ("--endpoint", "gen-any", "--arrivals", "constant", "--rates", "10,20", "--duration", "1")
        output = gen_serve("bench", "sweep", *words, *where, "--json").json
    rates = [(each["rate"], each["requests"], each["attainment"]) for each in output["rates"]]
    assert rates == [(10, 10, 1), (20, 20, 1)]
    assert len(rows(here / "out" / "02-20-per-s")) == 20


def test_trace_is_replayed_faster(gen_serve: GenServe, here: Path) -> None:
    recorded = [
        Arrival(offset=offset, endpoint=endpoint, tenant=tenant, width=512, height=256, steps=4)
        for offset, endpoint, tenant in ((0, "gen-pro", 0), (0.5, "gen-2-max", 1), (1.0, "gen-pro", 0))
    ]
    write_trace(here / "trace.jsonl", recorded)
    with scripted_server("serve") as (server, where):
        output = gen_serve("bench", "replay", "trace.jsonl", "--speed", "5", *where, "--json").json
    assert [each["endpoint"] for each in rows(here / "out")] == ["gen-pro", "gen-2-max", "gen-pro"]
    assert [each["intended"] for each in rows(here / "out")] == pytest.approx([0, 0.1, 0.2])
    assert all((body["width"], body["height"]) == (512, 256) for body in server.bodies)
    assert output["notes"] == ["2 tenants were recorded, and sent with 1 keys"]


@pytest.mark.slow
def test_recorded_trace_has_shapes_and_no_prompts(client_cli: GenServe, service: Service, here: Path) -> None:
    config, settings = here / "config.yaml", service.settings
    config_body = {
        "data_dir": str(settings.data_dir),
        "catalog": str(settings.catalog),
        "redis": {"url": settings.redis_url, "prefix": settings.redis.prefix},
        "sealing": {"keys": [key.get_secret_value() for key in settings.sealing.keys]},
    }
    config.write_text(json.dumps(config_body))
    words = ("generate", "gen-3-image-klein", "prompt=a very private star", "width=512", "height=256", "--detach")
    task = client_cli(*words).out.strip()
    record = ("bench", "record", "-o", "trace.jsonl", "--config", str(config))
    assert client_cli(*record).code == 0
    trace, text = read_trace(here / "trace.jsonl"), (here / "trace.jsonl").read_text()
    assert ("gen-3-image-klein", 512, 256) in {(each.endpoint, each.width, each.height) for each in trace}
    assert not any(secret in text for secret in (task, "private"))
    again = client_cli(*record)
    assert (again.code, again.err) == (2, "error: trace.jsonl exists; name another file with --output\n")


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ("run", 2, "name the requests to send: --mix FILE (configs/load.yaml is one), or --endpoint NAME"),
        ("run --endpoint a --size big", 2, "a size is written WIDTHxHEIGHT"),
        ("run --endpoint a --adapter openai --wait 3", 2, "--wait needs --adapter gen"),
        ("run --endpoint a --rate 0.001 --duration 1", 2, "0.001 requests per second for 1 s are no request at all"),
        ("run --endpoint a --base-url http://127.0.0.1:9", 1, "http://127.0.0.1:9 can't be reached: "),
        ("run --mix nowhere.yaml", 2, "[Errno 2] No such file or directory: 'nowhere.yaml'"),
    ],
)
def test_invalid_argument_is_named_in_one_line(
    gen_serve: GenServe, here: Path, words: str, code: int, expected: str
) -> None:
    result = gen_serve("bench", *words.split(), "--key", "x")
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith(f"error: {expected}")
    assert result.err.count("\n") == 1
    assert list(here.iterdir()) == []


def test_missing_package_is_named(gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gen_serve_bench", None)
    try:
        importlib.reload(bench)
        result = gen_serve("bench", "run", "--endpoint", "a")
    finally:
        monkeypatch.undo()
        importlib.reload(bench)
    assert result.code == 1
    assert result.err == "error: gen-serve bench is not installed: pip install ./benchmarks/load\n"
