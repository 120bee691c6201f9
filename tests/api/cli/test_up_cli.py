"""`gen-serve up` without Ray."""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from support.cli_runner import GenServe

from serve_app.launcher import ray_flags
from serve_app.launcher.embedded_redis import free_ports
from serve_app.launcher.launcher import Launcher, Stopped
from serve_app.launcher.running import running


@pytest.fixture(autouse=True)
def _own_switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keeps the launcher from changing the process of the tests."""
    monkeypatch.setattr(ray_flags, "apply_private", lambda *_: None)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def ports(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Returns the ports of the service and of its metrics."""
    service, metrics = free_ports(2)
    monkeypatch.setenv("GEN_SERVICE__PORT", str(service))
    monkeypatch.setenv("GEN_METRICS__PORT", str(metrics))
    return service, metrics


def raising(problem: BaseException, cause: BaseException | None = None) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise problem from cause

    return fail


def test_failed_start_of_ray_is_explained(gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = "The current node timed out during startup."
    monkeypatch.setattr("ray.init", raising(Exception(busy)))
    result = gen_serve("up")
    assert result.code == 1
    assert result.err.startswith(
        "error: the service did not start: the machine is too busy to start in time: try again"
    )
    assert result.err.endswith(f"{busy}\n")


def test_failed_start_of_the_service_is_explained(gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Launcher, "_start", raising(OSError(errno.ENOSPC, "No space left on device", "/data/key")))
    result = gen_serve("up")
    assert (result.code, "/data/key" in result.err, "free space" in result.err) == (1, True, True)


@pytest.mark.parametrize(
    "init",
    [raising(Stopped()), raising(SystemError("returned a result with an exception set"), Stopped())],
    ids=["python", "compiled"],
)
def test_signal_during_the_start_of_ray_stops(
    gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch, init: Callable[..., None]
) -> None:
    """Compiled code can't pass on the exception of a signal handler."""
    monkeypatch.setattr("ray.init", init)
    result = gen_serve("up")
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("stopped; accepted tasks continue after the next start\n")


def test_missing_catalog_is_an_invalid_setting(gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEN_CATALOG", "nowhere.yaml")
    result = gen_serve("up")
    assert result.code == 2
    assert result.err.endswith("nowhere.yaml\n")


@pytest.mark.parametrize(("made", "shown"), [(True, "API key, shown once: gen_secret\n"), (False, "")])
def test_key_is_shown_once_on_request(
    gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: bool, shown: str
) -> None:
    def start(launcher: Launcher) -> None:
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data/key").write_text("gen_secret\n")
        launcher.made_key = made

    monkeypatch.setattr(Launcher, "_start", start)
    monkeypatch.setattr(Launcher, "serve", raising(Stopped()))
    assert "gen_secret" not in gen_serve("up").out
    out = gen_serve("up", "--show-key").out
    assert out.endswith(
        f"API key in {tmp_path / 'data/key'}\n{shown}stopped; accepted tasks continue after the next start\n"
    )


def test_other_commands_find_the_service_until_it_stops(
    gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repository: Path, ports: tuple[int, int]
) -> None:
    services = []

    def serve(_: Launcher) -> None:
        services.extend(running())
        raise Stopped

    monkeypatch.setattr(Launcher, "_start", lambda _: None)
    monkeypatch.setattr(Launcher, "serve", serve)
    assert gen_serve("up").code == 0
    [service] = services
    assert service.base_url == f"http://127.0.0.1:{ports[0]}"
    assert service.metrics_url == f"http://127.0.0.1:{ports[1]}/metrics"
    assert (service.config, service.data_dir) == (tmp_path / "config.yaml", tmp_path / "data")
    assert (service.key_file, service.catalog) == (tmp_path / "data/key", repository / "configs/catalog.yaml")
    assert running() == []


def test_missing_permissions_of_redis_are_named(
    gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    with Redis.from_url(redis_url) as administrator:
        administrator.execute_command("ACL", "SETUSER", "app", "reset", "on", ">x", "~*", "+@all")
        monkeypatch.setenv("GEN_REDIS__URL", re.sub("//.*@", "//app:x@", redis_url))
        try:
            result = gen_serve("up")
        finally:
            administrator.execute_command("ACL", "DELUSER", "app")
    assert result.code == 2
    for words in ("permissions to access a channel", "ACL SETUSER"):
        assert words in result.err
