"""`gen-serve metrics`: the figures from a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import httpx2
from support.command_line import GenServe

from serve_app.launcher.embedded_redis import free_port
from serve_app.launcher.running import listen

MAIN = "from serve_app.cli import main; main()"


def test_the_figures_are_served_until_it_is_stopped(gen_serve: GenServe) -> None:
    environment = {**os.environ, "GEN_METRICS__PORT": str(free_port()), "GEN_METRICS__TOKEN": "shown"}
    command = [sys.executable, "-c", MAIN, "metrics", "--config", str(gen_serve.config)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            url = process.stdout.readline().removeprefix("figures: ").strip()
            assert httpx2.get(url, timeout=60).status_code == 401
            told = httpx2.get(url, headers={"Authorization": "Bearer shown"}, timeout=60)
            assert 'gen_tasks_queued{lane="flux3-klein"} 0.0' in told.text
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM


def test_what_is_missing_is_named(gen_serve: GenServe) -> None:
    gen_serve.monkeypatch.setenv("GEN_METRICS", '{"port": null}')
    assert gen_serve("metrics").err.startswith("error: metrics.port is null: set it, or GEN_METRICS__PORT")


def test_an_embedded_server_has_its_figures_served_by_up(gen_serve: GenServe) -> None:
    assert gen_serve.config
    gen_serve.config.write_text("{}")
    ran = gen_serve("metrics")
    assert (ran.code, ran.err.startswith("error: redis.url is not set: gen-serve up")) == (2, True)


def test_a_port_that_is_taken_is_named(gen_serve: GenServe) -> None:

    port = free_port()
    with listen("127.0.0.1", port, "metrics.port"):
        gen_serve.monkeypatch.setenv("GEN_METRICS__PORT", str(port))
        ran = gen_serve("metrics")
    assert (ran.code, ran.err) == (
        2,
        f"error: 127.0.0.1:{port} is in use; choose another with metrics.port or GEN_METRICS__PORT\n",
    )
