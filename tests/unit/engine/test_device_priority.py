from __future__ import annotations

import fcntl
import multiprocessing
import time
from pathlib import Path

from deployments.contract.model import Sharing
from deployments.engine.device import priority_on

LONG, NONE = 3600.0, 0.0


def waits(seconds: float, folder: Path, patience_s: float) -> bool:
    """Whether one that goes last would wait now."""
    last = priority_on(Sharing("gpu", "last", patience_s), folder)
    began = time.monotonic()
    last.wait()
    return time.monotonic() - began >= seconds


def claim_and_die(folder: Path) -> None:
    priority_on(Sharing("gpu", "first"), folder).announce(True)


def test_all_that_go_first_have_to_be_done(tmp_path: Path) -> None:
    firsts = [priority_on(Sharing("gpu", "first"), tmp_path) for _ in range(2)]
    for first in firsts:
        first.announce(True)
        first.announce(True)
        first.wait()
    firsts[0].announce(False)
    assert waits(0.05, tmp_path, patience_s=0.05)
    firsts[1].announce(False)
    firsts[1].announce(False)
    assert not waits(LONG, tmp_path, patience_s=LONG)


def test_those_that_go_last_do_not_wait_for_each_other(tmp_path: Path) -> None:
    other = priority_on(Sharing("gpu", "last", LONG), tmp_path)
    other.announce(True)
    other.wait()
    assert not waits(LONG, tmp_path, patience_s=LONG)


def test_another_device_is_another_matter(tmp_path: Path) -> None:
    first = priority_on(Sharing("other", "first"), tmp_path)
    first.announce(True)
    assert not waits(LONG, tmp_path, patience_s=LONG)


def test_a_claim_dies_with_its_process(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=claim_and_die, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert not waits(LONG, tmp_path, patience_s=LONG)


def test_one_that_goes_first_waits_for_nobody(tmp_path: Path) -> None:
    first = priority_on(Sharing("gpu", "first"), tmp_path)
    [lock] = tmp_path.iterdir()
    with lock.open("r+b") as frozen:
        fcntl.flock(frozen, fcntl.LOCK_EX)
        first.announce(True)
        first.wait()
    assert not waits(LONG, tmp_path, patience_s=LONG)
    first.announce(True)
    assert waits(0.05, tmp_path, patience_s=0.05)
