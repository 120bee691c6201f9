"""The launcher: ports, Ray's flags, notes of running services, the sealing key, advice on failed starts."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import ray
from ray._private.utils import validate_socket_filepath

from serve_app.config.settings import Settings
from serve_app.encryption import new_key
from serve_app.launcher import embedded_redis, ray_flags
from serve_app.launcher.advice import advise
from serve_app.launcher.embedded_redis import free_port
from serve_app.launcher.first_start import with_existing_key, with_key
from serve_app.launcher.launcher import Launcher, socket_root
from serve_app.launcher.running import RunningService, announce, folder, running


async def test_metrics_do_not_call_serve_before_the_service_runs() -> None:
    loaded = "ray.serve" in sys.modules
    assert await Launcher(Settings())._replicas() == {}
    assert ("ray.serve" in sys.modules) == loaded


def test_free_ports_are_different_free_and_below_outgoing_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = embedded_redis.free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        assert 10_000 <= port < first
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))
    with socket.socket() as busy_socket:
        busy_socket.bind(("127.0.0.1", 0))
        candidates = iter([busy_socket.getsockname()[1]] * 2 + ports[:1])
        monkeypatch.setattr(embedded_redis.SystemRandom, "randrange", lambda *_: next(candidates))
        assert free_port() == ports[0], "a port in use is skipped"
        monkeypatch.setattr(embedded_redis.SystemRandom, "randrange", lambda *_: busy_socket.getsockname()[1])
        with pytest.raises(OSError, match="no 1 free ports"):
            free_port()


@pytest.mark.parametrize("content", ["", "nonsense", "1024 65535"])
def test_free_ports_of_a_system_with_unusual_outgoing_ports(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_redis, "_OUTGOING_PORTS", tmp_path / "range")
    (tmp_path / "range").write_text(content)
    assert 10_000 <= free_port() < 32_768


@pytest.mark.parametrize("name", ["TMPDIR", "RAY_TMPDIR"])
def test_long_temporary_folder_is_replaced_by_tmp(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = "session_2026-11-28_10-00-00_123456_4194304/sockets/plasma_store"
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    for length in (20, 39, 40, 74, 200):
        folder = "/" + "t" * (length - 1)
        monkeypatch.setenv(name, folder)
        monkeypatch.setattr(tempfile, "tempdir", folder if name == "TMPDIR" else None)
        assert socket_root() == (folder if length < 40 else "/tmp")
        validate_socket_filepath(f"{socket_root()}/ray/{longest}")


METRICS_FLAG = "RAY_enable_metrics_collection"


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    with mock.patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith("RAY_")]:
            del os.environ[name]
        yield


@pytest.mark.parametrize("mode", ["disabled", ""])
def test_environment_can_not_turn_ray_authentication_off(mode: str) -> None:
    os.environ["RAY_AUTH_MODE"] = mode
    with pytest.raises(ValueError, match=r"RAY_AUTH_MODE is .* Unset it"):
        ray_flags.apply()


def test_joining_a_cluster_keeps_its_addresses_metrics_and_flags() -> None:
    os.environ["RAY_SERVE_HAPROXY_NBTHREAD"] = "4"
    ray_flags.apply()
    assert (os.environ["RAY_AUTH_MODE"], os.environ["RAY_SERVE_HAPROXY_NBTHREAD"]) == ("token", "4")
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in os.environ
    assert METRICS_FLAG not in os.environ


def test_private_cluster_has_flags_that_serve_reads(tmp_path: Path) -> None:
    ray_flags.apply_private(tmp_path, "127.0.0.1", tmp_path / "token")
    constants = (Path(ray.__file__).parent / "serve/_private/constants.py").read_text()
    assert [name for name in os.environ if name.startswith("RAY_SERVE_") and f'"{name}"' not in constants] == []
    assert os.environ["RAY_SERVE_CONTROL_LOOP_INTERVAL_S"] == "0.2"
    assert os.environ["RAY_SERVE_METRICS_EXPORT_INTERVAL_MS"] == "1000"


def test_proxy_of_a_private_cluster_serves_on_the_services_host(tmp_path: Path) -> None:
    os.environ[METRICS_FLAG] = "1"
    ray_flags.apply_private(tmp_path, "192.0.2.1", tmp_path / "token")
    assert os.environ[METRICS_FLAG] == "1", "an operator may turn metrics on"
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / "token")
    assert "--bind 192.0.2.1 " in Path(os.environ["RAY_SERVE_HAPROXY_BINARY_PATH"]).read_text()


ANNOUNCE = """
import sys
from serve_app.launcher.running import RunningService, announce
with announce(RunningService.model_validate_json(sys.argv[1])):
    print("announced", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "gen-serve"


def service(port: int = 8000) -> RunningService:
    return RunningService(
        base_url=f"http://127.0.0.1:{port}",
        metrics_url=None,
        key_file=Path("/data/key"),
        config=Path("/etc/gen.yaml"),
        data_dir=Path("/data"),
        catalog=Path("/etc/catalog.yaml"),
    )


def test_service_is_found_while_it_runs(state: Path) -> None:
    assert running() == []
    with announce(service()):
        assert running() == [service()]
        [note] = state.iterdir()
        assert stat.S_IMODE(note.stat().st_mode) == 0o600
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        note.write_text("{}")
        assert running() == [], "an invalid note is skipped"
    assert running() == []
    assert list(state.iterdir()) == []


def test_service_of_another_process_is_found_until_it_is_killed(state: Path) -> None:
    command = [sys.executable, "-c", ANNOUNCE, service(8001).model_dump_json()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "announced\n"
            with announce(service(8002)):
                assert {each.base_url for each in running()} == {"http://127.0.0.1:8001", "http://127.0.0.1:8002"}
        finally:
            process.kill()
    assert len(list(state.iterdir())) == 1, "its note is still there"
    assert running() == []


def test_service_runs_if_its_note_can_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with announce(service()):
        assert running() == []
    assert "--base-url" in caplog.text


def test_relative_state_folder_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder() == tmp_path / ".local" / "state" / "gen-serve"


def test_sealing_key_is_made_once_and_private(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert not with_existing_key(settings).has_sealing_keys
    first = with_key(settings).sealing_keys
    assert with_key(settings).sealing_keys == with_existing_key(settings).sealing_keys == first
    assert stat.S_IMODE((tmp_path / "sealing-key").stat().st_mode) == 0o600


def test_sealing_keys_of_the_settings_come_first(tmp_path: Path) -> None:
    key = new_key()
    values = {"data_dir": tmp_path, "sealing": {"keys": [key]}}
    assert with_key(Settings.model_validate(values)).sealing_keys == [key]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "free space"),
        (RuntimeError("# Can't open the log file: No space left on device"), "free space"),
        (OSError("validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /x"), "TMPDIR"),
        (OSError(errno.EADDRINUSE, "Address already in use"), "service.port"),
        (PermissionError(errno.EACCES, "Permission denied"), "owner"),
        (OSError(errno.EROFS, "Read-only file system"), "data_dir"),
        (MemoryError("Cannot allocate memory"), "ray.object_store_mb"),
        (ValueError("the amount of memory on this node available for tasks is less than 0"), "ray.object_store_mb"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "install"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory"), "path"),
        (TimeoutError(), "try again"),
        (Exception("The current node timed out during startup."), "try again"),
        (ValueError("what?"), "see the log"),
    ],
)
def test_advice_depends_on_the_cause(problem: Exception, advice: str) -> None:
    assert advice in advise(problem, "see the log")


def test_cause_of_an_error_decides_the_advice() -> None:
    problem = RuntimeError("it did not start")
    problem.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert "free space" in advise(problem)
