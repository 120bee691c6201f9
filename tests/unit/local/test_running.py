"""The note that a service leaves while it runs."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from serve_app.launcher.running import RunningService, announced, folder, running

LEAVE_A_NOTE = """
import sys
from serve_app.launcher.running import RunningService, announced

with announced(RunningService.model_validate_json(sys.argv[1])):
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
    with announced(service()):
        assert running() == [service()]
        [note] = state.iterdir()
        assert stat.S_IMODE(note.stat().st_mode) == 0o600
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert running() == []
    assert list(state.iterdir()) == []


def test_one_of_another_process_is_found_and_one_that_was_killed_is_not(state: Path) -> None:
    with elsewhere(service(8001)) as process:
        assert running() == [service(8001)]
        process.kill()
        process.wait()
        assert len(list(state.iterdir())) == 1, "what it left is still there"
        assert running() == []


def test_several_are_found(state: Path) -> None:
    with elsewhere(service(8001)), announced(service(8002)):
        assert {each.base_url for each in running()} == {"http://127.0.0.1:8001", "http://127.0.0.1:8002"}


def test_what_is_no_note_is_passed_over(state: Path) -> None:
    with announced(service()):
        [note] = state.iterdir()
        note.write_text("{}")
        assert running() == []


def test_a_service_runs_also_where_no_note_can_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with announced(service()):
        assert running() == []
    assert "--base-url" in caplog.text


def test_a_relative_place_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder() == tmp_path / ".local" / "state" / "gen-serve"
