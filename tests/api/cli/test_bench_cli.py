"""`gen-serve bench`, against a server of which it is known what it does: all that is exact is checked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.command_line import GenServe
from support.http_service import Service, serving
from support.known_server import Act, KnownServer

from serve_app.load import trace
from serve_app.load.outcome import Outcome

EVERY_50_MS = ("--arrivals", "constant", "--rate", "20", "--endpoint", "gen-any", "--size", "512x512", "--steps", "4")


@contextmanager
def known(*acts: Act) -> Iterator[tuple[KnownServer, tuple[str, ...]]]:
    """A server, and the words that name it."""
    server = KnownServer(*acts)
    with serving(server.app) as base_url:
        yield server, ("--base-url", base_url, "--key", "secret", "--poll-every", "0.02")


def rows(folder: Path) -> list[Outcome]:
    return [Outcome.of_json(json.loads(line)) for line in (folder / "rows.jsonl").read_text().splitlines()]


def test_a_run_tells_what_the_server_did(gen_serve: GenServe, here: Path) -> None:
    with known("serve", "refuse", "serve", "moderate", "no result") as (server, where):
        ran = gen_serve(
            "bench", "run", *EVERY_50_MS, "--duration", "2", "--warm-up", "1", *where, "-o", "out", "--json"
        )
    assert ran.code == 0
    figures = ran.json["figures"]
    sent = rows(here / "out")
    counted = [each for each in sent if not each.warm_up]
    assert (len(server.bodies), len(sent), len(counted), figures["requests"]) == (60, 60, 40, 40)
    assert Counter(each.end for each in sent) == {"served": 24, "refused": 12, "failed": 24}
    assert figures["ends"] == dict(Counter(each.end for each in counted))
    assert figures["refusals"] == {"HTTP 429": figures["ends"]["refused"]}
    assert set(figures["failures"]) == {"Content Moderated", "unusable answer: Ready without a result"}
    assert figures["attainment"] == round(figures["ends"]["served"] / 40, 4)
    assert figures["goodput_per_s"] == figures["ends"]["served"] / 2
    assert figures["polls_per_task"] == 2
    assert figures["lost"] == figures["poll_errors"] == 0
    assert json.loads((here / "out" / "summary.json").read_text()) == ran.json
    page = (here / "out" / "report.html").read_text()
    assert "refused: HTTP 429" in page
    for written in (page, ran.out, (here / "out" / "rows.jsonl").read_text()):
        assert "secret" not in written


@pytest.mark.slow
def test_people_get_tables_and_the_name_of_the_report(gen_serve: GenServe, here: Path) -> None:
    with known("serve") as (_, where):
        ran = gen_serve("bench", "run", *EVERY_50_MS, "--duration", "1", "--slo", "60", *where, "-o", "out")
    assert (ran.code, ran.err) == (0, "")
    assert ["attainment", "1"] in ran.table
    assert ran.out.endswith("report: out/report.html\n")


@pytest.mark.slow
def test_a_lost_task_fails_the_command_which_still_reports(gen_serve: GenServe, here: Path) -> None:
    with known("serve", "forget") as (_, where):
        ran = gen_serve("bench", "run", *EVERY_50_MS, "--duration", "0.2", "--limit", "1", *where, "-o", "out")
    assert (ran.code, ran.err) == (1, "error: 2 accepted tasks never ended\n")
    assert "2 accepted tasks never ended" in (here / "out" / "report.html").read_text()


@pytest.mark.slow
def test_an_objective_can_be_a_multiple_of_what_is_measured_first(gen_serve: GenServe, here: Path) -> None:
    with known("serve") as (server, where):
        words = ("--duration", "1", "--slo", "1000x", *where, "-o", "out", "--json")
        told = gen_serve("bench", "run", *EVERY_50_MS, *words).json
    assert len(server.bodies) == 4 + 20
    assert told["objective"] == "1000x solo latency"
    [(kind, solo)] = told["solo"].items()
    assert told["figures"]["kinds"][kind]["objective_s"] == pytest.approx(1000 * solo, rel=0.05)
    assert told["figures"]["attainment"] == 1


@pytest.mark.slow
def test_a_mix_is_sent_with_the_keys_of_its_tenants(
    gen_serve: GenServe, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOUD", "key of loud")
    (here / "quiet.key").write_text("key of quiet\n")
    (here / "mix.yaml").write_text(
        "endpoints: [{endpoint: gen-any, references: 1, reference_size: 64x64}]\n"
        "tenants: [{name: loud, traffic: 3, key_env: LOUD}, {name: quiet, key_file: quiet.key}]\n"
    )
    with known("serve") as (server, where):
        words = ("--mix", "mix.yaml", "--arrivals", "bursts", "--rate", "40", "--period", "1", "--duration", "2")
        told = gen_serve("bench", "run", *words, *where, "--processes", "2", "-o", "out", "--json").json
    keys = Counter(headers["x-key"] for headers in server.headers)
    tenants = told["figures"]["fairness"]["tenants"]
    assert keys == {f"key of {name}": each["served"] for name, each in tenants.items()}
    assert all(len(body["images"]) == 1 for body in server.bodies)
    assert told["figures"]["fairness"]["counted_in"] == "results"
    assert len(told["generator"]["cpu"]) == 2


@pytest.mark.slow
def test_a_sweep_has_a_row_and_a_folder_for_each_rate(gen_serve: GenServe, here: Path) -> None:
    with known("serve") as (server, where):
        words = (
            "--endpoint",
            "gen-any",
            "--arrivals",
            "constant",
            "--rates",
            "10,20",
            "--duration",
            "1",
            "--slo",
            "60",
        )
        told = gen_serve("bench", "sweep", *words, *where, "-o", "out", "--json").json
    assert [(each["rate"], each["requests"], each["attainment"]) for each in told["rates"]] == [
        (10, 10, 1),
        (20, 20, 1),
    ]
    assert told["notes"] == ["runs of 1 s are too short to tell rates that are 5 % apart: that takes 1440 s"]
    assert len(server.bodies) == 30
    compared = gen_serve("bench", "compare", "out/01-10-per-s", "out/02-20-per-s").out
    assert "these runs don't compare: rate: 10.0 against 20.0" in compared


@pytest.mark.slow
def test_a_server_that_refuses_everything_has_no_knee_and_a_report(gen_serve: GenServe, here: Path) -> None:
    with known("refuse") as (_, where):
        words = ("--endpoint", "gen-any", "--arrivals", "constant", "--slo", "60", "--duration", "0.5")
        ran = gen_serve("bench", "sweep", *words, "--start-rate", "16", *where, "-o", "out")
    assert ran.code == 0
    assert [row[:2] for row in ran.table[:4]] == [["2", "1"], ["4", "2"], ["8", "4"], ["16", "8"]]
    assert "no knee: 1 requests per second for 0.5 s are no request at all" in ran.out
    assert "no knee" in (here / "out" / "report.html").read_text()


def test_a_trace_is_sent_again(gen_serve: GenServe, here: Path) -> None:
    recorded = [
        trace.Arrival(offset=offset, endpoint=endpoint, tenant=tenant, width=512, height=256, steps=4)
        for offset, endpoint, tenant in ((0, "gen-pro", 0), (0.5, "gen-2-max", 1), (1.0, "gen-pro", 0))
    ]
    trace.write(here / "trace.jsonl", recorded)
    with known("serve") as (server, where):
        told = gen_serve("bench", "replay", "trace.jsonl", "--speed", "5", *where, "-o", "out", "--json").json
    assert [each.endpoint for each in rows(here / "out")] == ["gen-pro", "gen-2-max", "gen-pro"]
    assert [each.intended for each in rows(here / "out")] == pytest.approx([0, 0.1, 0.2])
    assert all((body["width"], body["height"]) == (512, 256) for body in server.bodies)
    assert told["figures"]["fairness"]["tenants"].keys() == {"tenant 0", "tenant 1"}
    assert told["notes"] == ["2 tenants were recorded, and sent with 1 keys"]


@pytest.mark.slow
def test_a_record_has_shapes_and_nothing_that_clients_wrote(client_of: GenServe, service: Service, here: Path) -> None:
    config = here / "config.yaml"
    settings = service.settings
    config.write_text(
        json.dumps(
            {
                "data_dir": str(settings.data_dir),
                "catalog": str(settings.catalog),
                "redis": {"url": settings.redis_url, "prefix": settings.redis.prefix},
                "sealing": {"keys": [key.get_secret_value() for key in settings.sealing.keys]},
            }
        )
    )
    words = ("generate", "gen-3-image-klein", "prompt=a very private star", "width=512", "height=256", "--detach")
    task = client_of(*words).out.strip()
    ran = client_of("bench", "record", "-o", "trace.jsonl", "--config", str(config))
    assert (ran.code, ran.err) == (0, "")
    text = (here / "trace.jsonl").read_text()
    found = trace.read(here / "trace.jsonl")
    assert ("gen-3-image-klein", 512, 256) in {(each.endpoint, each.width, each.height) for each in found}
    assert found[0].offset == 0
    assert task not in text
    assert "private" not in text
    again = client_of("bench", "record", "-o", "trace.jsonl", "--config", str(config))
    assert (again.code, again.err) == (2, "error: trace.jsonl is there already; name another file with --output\n")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("run", 2, "name what is sent: --mix FILE (configs/load.yaml is one), or --endpoint NAME"),
        ("run --mix a.yaml --endpoint b", 2, "name what is sent"),
        ("run --endpoint a --size big", 2, "a size is written WIDTHxHEIGHT"),
        ("run --endpoint a --slo soon", 2, "--slo should be seconds, like 5, or a multiple"),
        ("run --endpoint a --arrivals seldom", 2, "--arrivals should be one of poisson, constant, bursts, diurnal"),
        ("run --endpoint a --adapter soap", 2, "--adapter should be one of gen, openai, http"),
        ("run --endpoint a --adapter http", 2, "http: the plain HTTP adapter needs this section of the mix"),
        ("run --endpoint a --adapter openai --wait 3", 2, "--wait is for --adapter gen"),
        ("run --endpoint a --rate 0.001 --duration 1", 2, "0.001 requests per second for 1 s are no request at all"),
        ("run --endpoint a --base-url http://127.0.0.1:9", 1, "http://127.0.0.1:9 can't be reached: "),
        ("run --mix nowhere.yaml", 2, "[Errno 2] No such file or directory: 'nowhere.yaml'"),
        ("sweep --endpoint a", 2, "--slo is needed to search the knee"),
        ("sweep --endpoint a --rates 1,two", 2, "--rates should be numbers above 0 with commas between"),
        ("sweep --endpoint a --slo 1 --attain 2", 2, "--attain should be between 0 and 1, like 0.99, not 2"),
        ("sweep --endpoint a --rates 1 --attain 0.9", 2, "--attain and --start-rate are for the search"),
        ("replay nowhere.jsonl", 2, "[Errno 2] No such file or directory: 'nowhere.jsonl'"),
        ("compare nowhere other", 2, "[Errno 2] No such file or directory: 'nowhere'"),
    ],
)
def test_mistakes_are_told_in_a_line(gen_serve: GenServe, here: Path, words: str, code: int, said: str) -> None:
    key = () if words.startswith("compare") else ("--key", "x")
    ran = gen_serve("bench", *words.split(), *key)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith(f"error: {said}")
    assert ran.err.count("\n") == 1
    assert list(here.iterdir()) == []
