"""What the figures of a service may ask while it is not there."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from ray._private.utils import validate_socket_filepath

from serve_app.config.settings import Settings
from serve_app.encryption import new_key
from serve_app.launcher import embedded_redis, ray_flags
from serve_app.launcher.embedded_redis import free_port
from serve_app.launcher.first_start import with_existing_key, with_key
from serve_app.launcher.launcher import Launcher, socket_root
from serve_app.launcher.running import RunningService, announce, folder, running


async def test_nobody_asks_serve_for_replicas_before_the_service_runs() -> None:
    loaded = "ray.serve" in sys.modules
    assert await Launcher(Settings())._replicas() == {}
    assert ("ray.serve" in sys.modules) == loaded


def test_ray_is_imported_after_its_flags_are_set() -> None:
    code = "import sys, serve_app.launcher.launcher, serve_app.cli.cluster; print('ray' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert result.stdout.strip() == "False"


def test_ports_differ_can_be_bound_and_are_below_those_of_outgoing_connections(monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert free_port() == ports[0], "one that is taken is passed over"


@pytest.mark.parametrize("content", ["", "nonsense", "1024 65535"])
def test_a_system_that_gives_all_or_says_nothing(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_redis, "_OUTGOING_PORTS", tmp_path / "range")
    (tmp_path / "range").write_text(content)
    assert 10_000 <= free_port() < 32_768


def test_where_there_are_none_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as busy_socket:
        busy_socket.bind(("127.0.0.1", 0))
        port = busy_socket.getsockname()[1]
        monkeypatch.setattr(embedded_redis.SystemRandom, "randrange", lambda *_: port)
        with pytest.raises(OSError, match="no 1 free ports"):
            free_port()


@pytest.mark.parametrize("name", ["TMPDIR", "RAY_TMPDIR"])
def test_sockets_have_paths_that_fit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_nobody_turns_that_off_by_the_way(mode: str) -> None:
    os.environ["RAY_AUTH_MODE"] = mode
    with pytest.raises(ValueError, match=r"RAY_AUTH_MODE is .* Unset it"):
        ray_flags.apply()


def test_a_cluster_that_is_joined_keeps_its_addresses_its_figures_and_other_switches() -> None:
    os.environ["RAY_SERVE_HAPROXY_NBTHREAD"] = "4"
    ray_flags.apply()
    assert (os.environ["RAY_AUTH_MODE"], os.environ["RAY_SERVE_HAPROXY_NBTHREAD"]) == ("token", "4")
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in os.environ
    assert METRICS_FLAG not in os.environ


def test_serve_reads_the_switches_of_an_own_one(tmp_path: Path) -> None:
    ray_flags.apply_private(tmp_path, "127.0.0.1", tmp_path / "token")
    read = (
        "from ray.serve._private import constants as known;"
        "print(known.CONTROL_LOOP_INTERVAL_S, known.RAY_SERVE_METRICS_EXPORT_INTERVAL_MS)"
    )
    result = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.split() == ["0.2", "1000"]


def test_the_proxy_of_an_own_one_serves_on_the_services_host(tmp_path: Path) -> None:
    os.environ[METRICS_FLAG] = "1"
    ray_flags.apply_private(tmp_path, "192.0.2.1", tmp_path / "token")
    assert os.environ[METRICS_FLAG] == "1", "its figures can be asked for"
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / "token")
    assert "--bind 192.0.2.1 " in Path(os.environ["RAY_SERVE_HAPROXY_BINARY_PATH"]).read_text()


LEAVE_A_NOTE = """
import sys
from serve_app.launcher.running import RunningService, announce

with announce(RunningService.model_validate_json(sys.argv[1])):
    print("left", flush=True)
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


@contextmanager
def elsewhere(noted: RunningService) -> Iterator[subprocess.Popen[str]]:
    """Another process that has left a note."""
    command = [sys.executable, "-c", LEAVE_A_NOTE, noted.model_dump_json()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "left\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_service_is_found_while_it_runs(state: Path) -> None:
    assert running() == []
    with announce(service()):
        assert running() == [service()]
        [note] = state.iterdir()
        assert stat.S_IMODE(note.stat().st_mode) == 0o600
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        note.write_text("{}")
        assert running() == [], "what is no note is passed over"
    assert running() == []
    assert list(state.iterdir()) == []


def test_one_of_another_process_is_found_and_one_that_was_killed_is_not(state: Path) -> None:
    with elsewhere(service(8001)) as process:
        with announce(service(8002)):
            assert {each.base_url for each in running()} == {"http://127.0.0.1:8001", "http://127.0.0.1:8002"}
        process.kill()
        process.wait()
        assert len(list(state.iterdir())) == 1, "what it left is still there"
        assert running() == []


def test_a_service_runs_also_where_no_note_can_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with announce(service()):
        assert running() == []
    assert "--base-url" in caplog.text


def test_a_relative_place_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder() == tmp_path / ".local" / "state" / "gen-serve"


def test_it_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert not with_existing_key(settings).has_sealing_keys
    first = with_key(settings).sealing_keys
    assert with_key(settings).sealing_keys == with_existing_key(settings).sealing_keys == first
    assert stat.S_IMODE((tmp_path / "sealing-key").stat().st_mode) == 0o600


def test_keys_of_the_settings_come_first(tmp_path: Path) -> None:
    key = new_key()
    values = {"data_dir": tmp_path, "sealing": {"keys": [key]}}
    assert with_key(Settings.model_validate(values)).sealing_keys == [key]
    assert list(tmp_path.iterdir()) == []
