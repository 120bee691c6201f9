"""Uploads of tuned models: how many at a time, and how they are received."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from serve_app.config.sections import FinetuneSettings
from serve_app.finetunes import upload
from serve_app.finetunes.registry import CheckFailed, InvalidAdapter, TooManyFinetunes, UploadTooSlow
from serve_app.finetunes.upload import (
    GRACE_S,
    AdapterShape,
    FinetuneBase,
    UploadSlots,
    check_file,
    deadline_s,
    save,
)


def take(stack: ExitStack, slots: UploadSlots, project: str, organization: str) -> None:
    stack.enter_context(slots.acquire(project, organization))


def refusal(slots: UploadSlots, project: str, organization: str) -> str:
    with pytest.raises(TooManyFinetunes) as refused, slots.acquire(project, organization):
        pass
    return str(refused.value)


def test_a_project_has_one_place() -> None:
    slots = UploadSlots(4)
    with slots.acquire("p", "a"):
        assert "This project" in refusal(slots, "p", "a")
        with slots.acquire("q", "a"):
            pass
    with slots.acquire("p", "a"):
        pass


def test_an_organization_has_half_of_the_places_however_many_projects_it_has() -> None:
    slots = UploadSlots(5)
    with ExitStack() as stack:
        for project in ("p", "q"):
            take(stack, slots, project, "a")
        assert "This organization uploads 2" in refusal(slots, "r", "a")
        take(stack, slots, "s", "b")
    take(stack := ExitStack(), slots, "r", "a")
    stack.close()


def test_all_places_are_given_and_come_back() -> None:
    slots = UploadSlots(4)
    for _ in range(3):
        with ExitStack() as stack:
            for n in range(4):
                take(stack, slots, f"p{n}", f"organization {n}")
            assert "Other tuned models" in refusal(slots, "q", "b")
        with pytest.raises(RuntimeError), slots.acquire("p", "a"):
            raise RuntimeError


LIMITS = FinetuneSettings(max_mb=1, receive_s=100, min_kb_per_s=64)
PATIENCE_S = 60


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for each in chunks:
        yield each


async def trickle(pause_s: float, piece: bytes = b"x") -> AsyncIterator[bytes]:
    """Never ends."""
    while True:
        yield piece
        await asyncio.sleep(pause_s)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"x")
    return tmp_path / "file"


def test_there_is_time_for_what_has_come_and_a_little_more() -> None:
    assert deadline_s(0, LIMITS) == GRACE_S
    assert deadline_s(64 * 1024 * 5, LIMITS) == GRACE_S + 5
    assert deadline_s(64 * 1024 * 1000, LIMITS) == 100


def test_what_comes_is_written(file: Path) -> None:
    assert asyncio.run(save(pieces(b"ab", b"", b"c"), file, LIMITS)) == 3
    assert file.read_bytes() == b"abc"


async def test_a_file_that_is_too_large_is_refused_at_once(file: Path) -> None:
    with pytest.raises(InvalidAdapter, match="at most 1 MiB"):
        await save(trickle(0, b"x" * 2**20), file, LIMITS)


async def test_nothing_is_refused(file: Path) -> None:
    with pytest.raises(InvalidAdapter, match="empty"):
        await save(pieces(), file, LIMITS)


@pytest.mark.parametrize(
    ("limits", "grace_s"),
    [
        (FinetuneSettings(max_mb=1, receive_s=0.2, min_kb_per_s=0.001), GRACE_S),
        (FinetuneSettings(max_mb=1, receive_s=100, min_kb_per_s=64), 0.2),
    ],
    ids=["in-all", "at-any-moment"],
)
@pytest.mark.parametrize("pause_s", [0.01, 1000], ids=["trickle", "silence"])
async def test_an_upload_that_comes_too_slowly_is_ended(
    file: Path, monkeypatch: pytest.MonkeyPatch, limits: FinetuneSettings, grace_s: float, pause_s: float
) -> None:
    monkeypatch.setattr(upload, "GRACE_S", grace_s)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(UploadTooSlow, match=f"whole within {limits.receive_s:g} s, and come at .* KiB/s"):
            await save(trickle(pause_s), file, limits)


BEGIN = """
import json, os, sys, time
from deployments.lora.check import confine
confine(int(sys.argv[2]), int(sys.argv[4]))
print(json.dumps({"begun": True}), flush=True)
"""


async def ask(monkeypatch: pytest.MonkeyPatch, file: Path, script: str) -> AdapterShape:
    """The verdict where `script` stands in for the check."""
    monkeypatch.setattr(upload, "_CHECK", (sys.executable, "-c", script))
    return await check_file(file, 1, FinetuneBase("bundled/flux3"), 1)


async def test_a_verdict_is_passed_on(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    verdict = """print('{"rank": 4, "layers": 1}')"""
    assert await ask(monkeypatch, file, BEGIN + verdict) == AdapterShape(rank=4, layers=1)
    with pytest.raises(InvalidAdapter, match="too wide"):
        await ask(monkeypatch, file, """print('{"error": "too wide"}')""")


TOO_MUCH_MEMORY = "damaged, or its check takes too much memory"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (BEGIN + "while True: pass", "its check takes more than 1 s"),
        (BEGIN + "bytearray(1 << 30)", TOO_MUCH_MEMORY),
        ("import torch" + BEGIN + "torch.ones(1 << 28)", TOO_MUCH_MEMORY),
        *(
            (BEGIN + end, "damaged")
            for end in ("os.abort()", "os._exit(3)", "raise ValueError", "os.kill(os.getpid(), 11)")
        ),
    ],
)
async def test_a_file_that_breaks_its_check_is_refused(
    monkeypatch: pytest.MonkeyPatch, file: Path, script: str, message: str
) -> None:
    with pytest.raises(InvalidAdapter, match=message):
        await ask(monkeypatch, file, script)


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
