"""`gen-serve up` without Ray: what it leaves for other commands, and where Ray does not come up."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import GenServe

from serve_app.launcher import ray_flags
from serve_app.launcher.embedded_redis import EmbeddedRedis, RedisNotStarted, free_port
from serve_app.launcher.launcher import Launcher, Stopped
from serve_app.launcher.running import running

BUSY = "The current node timed out during startup."


@pytest.fixture(autouse=True)
def _own_switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the launcher sets for its process must not stay in that of the tests."""
    monkeypatch.setattr(ray_flags, "apply_private", lambda *_: None)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_machine_too_busy_for_ray_is_told_so(gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: Any) -> None:
        raise Exception(BUSY)

    monkeypatch.setattr("ray.init", init)
    monkeypatch.setenv("GEN_SERVICE__PORT", str(free_port()))
    monkeypatch.setenv("GEN_METRICS__PORT", str(free_port()))
    result = gen_serve("up")
    assert result.code == 1
    assert result.err.startswith(
        "error: the service did not start: the machine is too busy to start in time: try again"
    )
    assert result.err.endswith(f"{BUSY}\n")


def test_a_signal_while_ray_starts_is_a_stop(gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: Any) -> None:
        raise Stopped

    monkeypatch.setattr("ray.init", init)
    monkeypatch.setenv("GEN_SERVICE__PORT", str(free_port()))
    monkeypatch.setenv("GEN_METRICS__PORT", str(free_port()))
    result = gen_serve("up")
    assert (result.code, result.err) == (0, "")


def test_a_full_disk_is_told_so(gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: Launcher) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/data/key")

    monkeypatch.setattr(Launcher, "_start", start)
    result = gen_serve("up")
    assert result.code == 1
    assert "/data/key" in result.err
    assert "free space" in result.err


def test_a_catalog_that_is_missing_is_wrong_configuration(gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEN_CATALOG", "nowhere.yaml")
    monkeypatch.setenv("GEN_SERVICE__PORT", str(free_port()))
    result = gen_serve("up")
    assert result.code == 2
    assert result.err.endswith("nowhere.yaml\n")


def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path / "redis")
    (tmp_path / "redis" / "appendonlydir").write_text("no folder")
    try:
        with pytest.raises(RedisNotStarted, match=r"accepted tasks are kept\. .*server\.log ends:"):
            server.start()
    finally:
        server.stop()


@pytest.mark.parametrize(("made", "shown"), [(True, "API key, shown once: gen_secret\n"), (False, "")])
def test_the_key_is_shown_where_it_is_made(
    gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: bool, shown: str
) -> None:
    def start(launcher: Launcher) -> None:
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data/key").write_text("gen_secret\n")
        launcher.made_key = made

    def serve(_: Launcher) -> None:
        raise Stopped

    monkeypatch.setattr(Launcher, "_start", start)
    monkeypatch.setattr(Launcher, "serve", serve)
    monkeypatch.setenv("GEN_SERVICE__PORT", "8123")
    assert "gen_secret" not in gen_serve("up").out
    out = gen_serve("up", "--show-key").out
    assert out.endswith(
        f"API key in {tmp_path / 'data/key'}\n{shown}stopped; accepted tasks continue after the next start\n"
    )


def test_other_commands_find_the_service_until_it_is_stopped(
    gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repository: Path
) -> None:
    services = []

    def serve(_: Launcher) -> None:
        services.extend(running())
        raise Stopped

    monkeypatch.setattr(Launcher, "_start", lambda _: None)
    monkeypatch.setattr(Launcher, "serve", serve)
    monkeypatch.setenv("GEN_SERVICE__PORT", "8123")
    monkeypatch.setenv("GEN_METRICS__PORT", "9123")
    assert gen_serve("up").code == 0
    [service] = services
    assert (service.base_url, service.metrics_url) == ("http://127.0.0.1:8123", "http://127.0.0.1:9123/metrics")
    assert (service.config, service.data_dir) == (tmp_path / "config.yaml", tmp_path / "data")
    assert (service.key_file, service.catalog) == (tmp_path / "data/key", repository / "configs/catalog.yaml")
    assert running() == []


def test_ctrl_c_while_ray_is_busy_is_a_stop_and_no_crash(gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code can't pass on what a signal's handler raises."""

    def start(_: Launcher) -> None:
        raise SystemError("returned a result with an exception set") from Stopped()

    monkeypatch.setattr(Launcher, "_start", start)
    result = gen_serve("up")
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("stopped; accepted tasks continue after the next start\n")
