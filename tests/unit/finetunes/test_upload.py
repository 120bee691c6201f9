"""Uploads of tuned models: slots, deadlines, and the process that checks a file."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from deployments.lora.check import confine
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


def refusal(slots: UploadSlots, project: str, organization: str) -> str:
    with pytest.raises(TooManyFinetunes) as refused, slots.acquire(project, organization):
        pass
    return str(refused.value)


def test_project_has_one_upload_at_a_time() -> None:
    slots = UploadSlots(4)
    with slots.acquire("p", "a"):
        assert "This project" in refusal(slots, "p", "a")
        with slots.acquire("q", "a"):
            pass
    with slots.acquire("p", "a"):
        pass


def test_organization_has_half_of_the_slots_over_its_projects() -> None:
    slots = UploadSlots(5)
    with slots.acquire("p", "a"), slots.acquire("q", "a"):
        assert "This organization uploads 2" in refusal(slots, "r", "a")
        with slots.acquire("s", "b"):
            pass
    with slots.acquire("r", "a"):
        pass


def test_all_slots_are_used_and_freed_also_by_errors() -> None:
    slots = UploadSlots(4)
    for _ in range(3):
        with ExitStack() as stack:
            for n in range(4):
                stack.enter_context(slots.acquire(f"p{n}", f"organization {n}"))
            assert "Other tuned models" in refusal(slots, "q", "b")
        with pytest.raises(RuntimeError), slots.acquire("p", "a"):
            raise RuntimeError


LIMITS = FinetuneSettings(max_mb=1, receive_s=100, min_kb_per_s=64)
PATIENCE_S = 60


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def trickle(pause_s: float, chunk: bytes = b"x") -> AsyncIterator[bytes]:
    """Never ends."""
    while True:
        yield chunk
        await asyncio.sleep(pause_s)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"x")
    return tmp_path / "file"


def test_deadline_grows_with_the_received_bytes_up_to_the_limit() -> None:
    assert [deadline_s(64 * 1024 * n, LIMITS) for n in (0, 5, 1000)] == [GRACE_S, GRACE_S + 5, 100]


def test_received_chunks_are_written(file: Path) -> None:
    assert asyncio.run(save(chunks(b"ab", b"", b"c"), file, LIMITS)) == 3
    assert file.read_bytes() == b"abc"


async def test_empty_or_too_large_upload_is_refused(file: Path) -> None:
    with pytest.raises(InvalidAdapter, match="empty"):
        await save(chunks(), file, LIMITS)
    assert await save(chunks(bytes(2**20)), file, LIMITS) == 2**20
    with pytest.raises(InvalidAdapter, match="at most 1 MiB"):
        await save(trickle(0, bytes(2**20)), file, LIMITS)


@pytest.mark.parametrize(
    ("limits", "grace_s", "pause_s"),
    [
        (FinetuneSettings(max_mb=1, receive_s=0.2, min_kb_per_s=0.001), GRACE_S, 0.01),
        (LIMITS, 0.2, 0.01),
        (LIMITS, 0.2, 1000),
    ],
    ids=["too long", "too slow", "silent"],
)
async def test_slow_upload_is_ended(
    file: Path, monkeypatch: pytest.MonkeyPatch, limits: FinetuneSettings, grace_s: float, pause_s: float
) -> None:
    monkeypatch.setattr(upload, "GRACE_S", grace_s)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(UploadTooSlow, match=f"whole within {limits.receive_s:g} s, and come at .* KiB/s"):
            await save(trickle(pause_s), file, limits)


BEGIN = "import json, mmap, os, sys\nprint(json.dumps({'begun': True}), flush=True)\n"
CONFINE = f"""
import math, resource
from pathlib import Path
{inspect.getsource(confine)}
confine(int(sys.argv[2]), int(sys.argv[4]))
"""
"""Importing it would import torch, which takes seconds."""
ALLOCATE = "memory = mmap.mmap(-1, {} << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
VERDICT = "print(json.dumps({'rank': 4, 'layers': 1}))"
TOO_MUCH_MEMORY = "damaged, or its check takes too much memory"


async def check(monkeypatch: pytest.MonkeyPatch, file: Path, script: str) -> AdapterShape:
    """Runs `script` in place of the check."""
    monkeypatch.setattr(upload, "_CHECK", (sys.executable, "-c", script))
    return await check_file(file, 1, FinetuneBase("bundled/flux3"), 1)


async def test_verdict_within_the_limits_is_returned(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    shared = "shared = mmap.mmap(-1, 1 << 30)  # like torch's libraries, no memory of its own\n"
    script = BEGIN + shared + CONFINE + ALLOCATE.format(400) + VERDICT
    assert await check(monkeypatch, file, script) == AdapterShape(rank=4, layers=1)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("""print('{"error": "too wide"}')""", "too wide"),
        (BEGIN + CONFINE + "while True: pass", "its check takes more than 1 s"),
        (BEGIN + CONFINE + ALLOCATE.format(600), TOO_MUCH_MEMORY),
        (BEGIN + "os._exit(3)", TOO_MUCH_MEMORY),
        (BEGIN + "os.abort()", TOO_MUCH_MEMORY),
    ],
    ids=["refused", "processor time", "memory", "exit", "signal"],
)
async def test_file_that_fails_its_check_is_invalid(
    monkeypatch: pytest.MonkeyPatch, file: Path, script: str, message: str
) -> None:
    with pytest.raises(InvalidAdapter, match=message):
        await check(monkeypatch, file, script)


async def test_error_before_the_file_is_read_blames_no_file(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    with pytest.raises(CheckFailed):
        await check(monkeypatch, file, "raise OSError('no such base')")


async def test_hung_check_is_killed(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setattr(upload, "_START_S", 0)
    before = psutil.Process().children()
    with pytest.raises(CheckFailed):
        await check(monkeypatch, file, "import time; time.sleep(1000)")
    assert psutil.Process().children() == before
