"""The process that checks a file, in its bounds: what a file makes of it is known by how it ends."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from serve_app.finetunes import upload
from serve_app.finetunes.registry import CheckFailed, Refused
from serve_app.finetunes.upload import checked

BEGIN = """
import json, os, sys, time
from deployments.lora.check import confine
confine(int(sys.argv[2]), int(sys.argv[4]))
print(json.dumps({"begun": True}), flush=True)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    return file


async def ask(monkeypatch: pytest.MonkeyPatch, file: Path, script: str) -> dict[str, object]:
    """The verdict where `script` stands in for the check."""
    monkeypatch.setattr(upload, "_CHECK", (sys.executable, "-c", script))
    return await checked(file, 1, "bundled/flux3", None, 1)


async def test_a_verdict_is_passed_on(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    assert await ask(monkeypatch, file, BEGIN + """print('{"rank": 4, "layers": 1}')""") == {"rank": 4, "layers": 1}
    with pytest.raises(Refused, match="too wide"):
        await ask(monkeypatch, file, """print('{"error": "too wide"}')""")


async def test_a_file_that_takes_too_much_of_a_processor_is_refused(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    with pytest.raises(Refused, match="its check takes more than 1 s"):
        await ask(monkeypatch, file, BEGIN + "while True: pass")


@pytest.mark.parametrize(
    ("before", "taking"),
    [
        ("", "bytearray(1 << 30)"),
        ("import torch", "torch.ones(1 << 28)"),
    ],
)
async def test_a_file_that_takes_too_much_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch, file: Path, before: str, taking: str
) -> None:
    with pytest.raises(Refused, match="damaged, or its check takes too much memory"):
        await ask(monkeypatch, file, before + BEGIN + taking)


@pytest.mark.parametrize("end", ["os.abort()", "os._exit(3)", "raise ValueError", "os.kill(os.getpid(), 11)"])
async def test_a_file_that_breaks_its_check_is_refused(monkeypatch: pytest.MonkeyPatch, file: Path, end: str) -> None:
    with pytest.raises(Refused, match="damaged"):
        await ask(monkeypatch, file, BEGIN + end)


async def test_what_breaks_before_the_file_is_read_is_not_the_files_fault(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    with pytest.raises(CheckFailed):
        await ask(monkeypatch, file, "raise OSError('no such base')")


async def test_a_check_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, file: Path, tmp_path: Path) -> None:
    monkeypatch.setattr(upload, "_START_S", 0)
    pid = tmp_path / "pid"
    script = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    with pytest.raises(CheckFailed):
        await ask(monkeypatch, file, script)
    assert not psutil.pid_exists(int(pid.read_text()))
