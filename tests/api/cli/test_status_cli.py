"""The endpoints and the status of a service, and its metrics by a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import httpx2
import pytest
from support.cli_runner import GenServe
from support.http_service import Service
from support.worker import QUEUE

from serve_app.accounts.roles import Role
from serve_app.launcher.embedded_redis import free_port
from serve_app.launcher.running import listen


def test_endpoints_are_listed_with_their_prices(client_cli: GenServe) -> None:
    rows = {row[0]: row[1:] for row in client_cli("models").table}
    assert rows["gen-3-image-klein"][:4] == ["0.9", "image", "0.18", "0.1"]
    listed = {(each["endpoint"], each["mode"]): each for each in client_cli("models", "--json").json}
    assert listed["gen-3-image-klein", None]["credits"] == 0.9
    assert listed["gen-3-image-klein", None]["further_MP"] == 0.18
    assert listed["gen-3-video", "draft"]["per"] == "second"
    assert listed["gen-pro-1.0-canny", None]["deprecated"] is True


def test_status_of_a_ready_service_has_its_queues(
    client_cli: GenServe, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    client_cli("generate", "gen-3-image-klein", "prompt=a red star", "--detach")
    with service.metrics() as metrics_client:
        metrics = ("--metrics-url", f"{str(metrics_client.base_url).rstrip('/')}/metrics")
        result = client_cli("status", *metrics)
        queued = {row[0]: int(row[1]) for row in result.table[1:]}
        status = client_cli("status", "--json", *metrics).json
    assert result.out.startswith(f"{service.base_url}: ready\n")
    assert (result.code, queued[QUEUE] >= 1) == (0, True)
    assert (status["base_url"], status["ready"]) == (service.base_url, True)
    assert status["models"][QUEUE].keys() == {"queued", "leased", "quarantined"}
    monkeypatch.setenv("GEN_KEY", service.worker.new_key(service.worker.new_project("default"), Role.OPERATOR))
    heading = client_cli("status").out.splitlines()[1]
    assert all(name in heading for name in ("wait p50/p95", "replicas", "last error"))
    assert client_cli("status", "--window", "24h").code == 0
    queue = client_cli("status", "--json").json["models"][QUEUE]
    assert queue["queued"] >= 1
    assert {"predicted_wait_s", "windows", "what_if", "failures"} <= set(queue)


def test_status_without_metrics_says_why(client_cli: GenServe) -> None:
    result = client_cli("status", notes=True)
    assert result.code == 0
    assert "--metrics-url" in result.err
    out = client_cli("status", "--metrics-url", "http://127.0.0.1:1/metrics", "--json")
    assert out.json["models"] is None


def test_status_of_an_absent_service_fails(client_cli: GenServe) -> None:
    result = client_cli("status", "--base-url", "http://127.0.0.1:1", "--json")
    assert (result.code, result.json["ready"]) == (1, False)
    assert result.err == "error: http://127.0.0.1:1 is not ready or does not run; gen-serve up starts a service\n"


def test_metrics_are_served_with_a_token_until_a_signal(
    gen_serve: GenServe, client_cli: GenServe, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, "GEN_METRICS__PORT": str(free_port()), "GEN_METRICS__TOKEN": "shown"}
    command = [sys.executable, "-c", "from serve_app.cli import main; main()", "metrics", "--config"]
    with subprocess.Popen(
        [*command, str(gen_serve.config)], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            url = process.stdout.readline().removeprefix("metrics: ").strip()
            response = httpx2.get(url, headers={"Authorization": "Bearer shown"}, timeout=60)
            assert 'gen_tasks_queued{model="flux3-klein"} 0.0' in response.text
            words = ("status", "--base-url", service.base_url, "--metrics-url", url)
            assert "--metrics-token" in client_cli(*words, notes=True).err
            monkeypatch.setenv("GEN_METRICS__TOKEN", "shown")
            assert client_cli(*words, "--json").json["models"][QUEUE]["queued"] == 0
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM


def test_missing_or_used_port_of_metrics_is_named(gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as missing:
        missing.setenv("GEN_METRICS", '{"port": null}')
        assert gen_serve("metrics").err.startswith("error: metrics.port is null: set it, or GEN_METRICS__PORT")
    port = free_port()
    with listen("127.0.0.1", port, "metrics.port"):
        monkeypatch.setenv("GEN_METRICS__PORT", str(port))
        result = gen_serve("metrics")
    assert (result.code, f"127.0.0.1:{port} is in use; choose another with metrics.port" in result.err) == (2, True)
    assert gen_serve.config
    gen_serve.config.write_text("{}")
    result = gen_serve("metrics")
    assert (result.code, result.err.startswith("error: redis.url is not set: gen-serve up")) == (2, True)
