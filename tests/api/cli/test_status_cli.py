"""What a service says of itself: which endpoints it has, whether it is up, what waits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import SecretStr
from support.command_line import GenServe
from support.http_service import Service, running
from support.worker import LANE

from serve_app.accounts.credits import DEFAULT_ORGANIZATION
from serve_app.accounts.roles import Role
from serve_app.config.settings import MetricsSettings


def test_endpoints_are_listed_with_their_prices(client_of: GenServe) -> None:
    rows = {row[0]: row[1:] for row in client_of("models").table}
    assert rows["gen-3-image-klein"][:4] == ["0.9", "picture", "0.18", "0.1"]
    listed = {(each["endpoint"], each["mode"]): each for each in client_of("models", "--json").json}
    assert listed["gen-3-image-klein", None]["credits"] == 0.9
    assert listed["gen-3-image-klein", None]["further_MP"] == 0.18
    assert listed["gen-3-video", "draft"]["per"] == "second"
    assert listed["gen-pro-1.0-canny", None]["deprecated"] is True


def test_every_price_is_that_of_a_request(client_of: GenServe) -> None:
    [price] = [each for each in client_of("models", "--json").json if each["endpoint"] == "gen-2-max"]
    submitted = client_of(
        "generate", "gen-2-max", "prompt=a red star", "width=1024", "height=1024", "--detach", "--json"
    )
    assert submitted.json["cost"] == price["credits"]


def test_another_service_of_the_dialect_may_describe_nothing(
    client_of: GenServe, monkeypatch: pytest.MonkeyPatch, service: Service
) -> None:
    monkeypatch.setattr(service.app, "openapi", lambda: {"paths": {}})
    monkeypatch.setattr(service.app, "openapi_schema", None)
    assert client_of("models", "--json").json == []
    assert client_of("generate", "gen-3-image-klein", "prompt=a red star", "steps=4", "--detach").code == 0


def test_a_service_that_is_ready(client_of: GenServe, service: Service) -> None:
    client_of("generate", "gen-3-image-klein", "prompt=a red star", "--detach")
    with service.figures() as figures:
        metrics = ("--metrics-url", f"{str(figures.base_url).rstrip('/')}/metrics")
        ran = client_of("status", *metrics)
        queued = {row[0]: int(row[1]) for row in ran.table[1:]}
        status = client_of("status", "--json", *metrics).json
    assert ran.out.startswith(f"{service.base_url}: ready\n")
    assert (ran.code, queued[LANE] >= 1) == (0, True)
    assert (status["base_url"], status["ready"]) == (service.base_url, True)
    assert status["lanes"][LANE]["queued"] == queued[LANE]
    assert set(status["lanes"][LANE]) == {"queued", "leased", "suspects"}


def test_operators_see_replicas_and_waits_in_seconds(
    client_of: GenServe, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    client_of("generate", "gen-3-image-klein", "prompt=a red star", "--detach")
    project = service.worker.new_project(DEFAULT_ORGANIZATION)
    monkeypatch.setenv("GEN_KEY", service.worker.new_key(project, Role.OPERATOR))
    ran = client_of("status")
    heading = ran.out.splitlines()[1]
    assert [name for name in ("wait s", "replicas", "last error") if name not in heading] == []
    lane = client_of("status", "--json").json["lanes"][LANE]
    assert lane["queued"] >= 1
    assert {"predicted_wait_s", "replicas", "failures"} <= set(lane)


def test_without_figures_it_is_said_why(client_of: GenServe) -> None:
    ran = client_of("status", notes=True)
    assert ran.code == 0
    assert "--metrics-url" in ran.err
    out = client_of("status", "--metrics-url", "http://127.0.0.1:1/metrics", "--json")
    assert out.json["lanes"] is None


def test_a_service_that_is_not_there(client_of: GenServe) -> None:
    ran = client_of("status", "--base-url", "http://127.0.0.1:1", "--json")
    assert (ran.code, ran.json["ready"]) == (1, False)
    assert ran.err == "error: http://127.0.0.1:1 is not ready, or not there; gen-serve up starts a service\n"


def test_figures_that_ask_for_a_token(
    redis_url: str, repository: Path, tmp_path: Path, client_of: GenServe, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = MetricsSettings(token=SecretStr("let me in"))
    with running(tmp_path / "data", redis_url, repository, metrics=metrics) as service, service.figures() as figures:
        monkeypatch.setenv("GEN_METRICS_URL", f"{str(figures.base_url).rstrip('/')}/metrics")
        words = ("status", "--base-url", service.base_url)
        assert "--metrics-token" in client_of(*words, notes=True).err
        monkeypatch.setenv("GEN_METRICS__TOKEN", "let me in")
        assert json.loads(client_of(*words, "--json").out)["lanes"]
