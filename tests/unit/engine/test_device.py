from __future__ import annotations

import fcntl
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from engine_bench import WAIT, Threaded
from support.jobs import make_job
from support.virtual_backend import VirtualBackend

from deployments.contract.model import Sharing
from deployments.engine.device import priority_on
from deployments.engine.requests import RequestHandle

LONG = 3600.0


def waits(seconds: float, folder: Path, max_wait_s: float) -> bool:
    """Returns whether a low-priority model would wait now."""
    last = priority_on(Sharing(device="gpu", priority="low", max_wait_s=max_wait_s), folder)
    start = time.monotonic()
    last.wait()
    return time.monotonic() - start >= seconds


def test_low_priority_waits_for_all_high_priority_models(tmp_path: Path) -> None:
    firsts = [priority_on(Sharing(device="gpu", priority="high"), tmp_path) for _ in range(2)]
    for first in firsts:
        first.announce(True)
        first.announce(True)
        first.wait()
    firsts[0].announce(False)
    assert waits(0.05, tmp_path, max_wait_s=0.05)
    firsts[1].announce(False)
    firsts[1].announce(False)
    assert not waits(LONG, tmp_path, max_wait_s=LONG)


@pytest.mark.parametrize("other", [{"device": "other", "priority": "high"}, {"device": "gpu", "priority": "low"}])
def test_low_priority_waits_for_no_other_models(other: dict[str, Any], tmp_path: Path) -> None:
    model = priority_on(Sharing(**other), tmp_path)
    model.announce(True)
    model.wait()
    assert not waits(LONG, tmp_path, max_wait_s=LONG)


CLAIM = """
import sys
from pathlib import Path
from deployments.contract.model import Sharing
from deployments.engine.device import priority_on

priority_on(Sharing(device="gpu", priority="high"), Path(sys.argv[1])).announce(True)
"""


def test_claim_ends_with_its_process(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CLAIM, str(tmp_path)], check=True)
    assert not waits(LONG, tmp_path, max_wait_s=LONG)


def test_high_priority_never_waits(tmp_path: Path) -> None:
    first = priority_on(Sharing(device="gpu", priority="high"), tmp_path)
    [lock] = tmp_path.iterdir()
    with lock.open("r+b") as frozen:
        fcntl.flock(frozen, fcntl.LOCK_EX)
        first.announce(True)
        first.wait()
    assert not waits(LONG, tmp_path, max_wait_s=LONG)
    first.announce(True)
    assert waits(0.05, tmp_path, max_wait_s=0.05)


def test_stop_gives_up_on_a_hung_call() -> None:
    entered, release = threading.Event(), threading.Event()

    def hang(call: str, names: list[str]) -> None:
        if call == "encode":
            entered.set()
            release.wait(WAIT)

    bench = Threaded(VirtualBackend(before=hang))
    bench.submit(make_job("a"))
    assert entered.wait(WAIT)
    assert bench.engine.health.busy_since is not None
    assert bench.engine.stop(timeout=0.0) is False
    release.set()
    bench.stop()
    assert bench.listeners["a"].kinds == ["Started"]
    with pytest.raises(RuntimeError, match="stopped"):
        bench.submit(make_job("b"))


def test_engine_with_threads_rejects_step_once() -> None:
    bench = Threaded(VirtualBackend())
    with pytest.raises(RuntimeError, match="threads"):
        bench.engine.step_once()
    with pytest.raises(RuntimeError, match="once"):
        bench.engine.start()
    bench.stop()


def test_threads_end_every_job_exactly_once() -> None:
    names = [str(n) for n in range(200)]
    poisoned = set(random.Random(1).sample(names, 10))
    cancelled = set(random.Random(2).sample(names, 40))
    bench = Threaded(VirtualBackend(errors={("step", name): ValueError() for name in poisoned}))
    after_cancel: dict[str, int] = {}

    def client(share: list[str], seed: int) -> None:
        rng, open_ones = random.Random(seed), dict[str, RequestHandle]()
        for name in share:
            steps = 500 if name in cancelled else rng.randint(1, 6)
            job = make_job(name, size=rng.choice([64, 128]), steps=steps, exclusive=rng.random() < 0.02)
            [handle] = bench.submit(job)
            if name in cancelled:
                open_ones[name] = handle
            # Some are cancelled while they wait, others during a call.
            while open_ones and (name == share[-1] or rng.random() < 0.2):
                victim, handle = open_ones.popitem()
                bench.engine.cancel(handle)
                after_cancel[victim] = len(bench.listeners[victim].events)

    clients = [threading.Thread(target=client, args=(names[n::8], n)) for n in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(WAIT)
    bench.await_ends(len(names) - len(cancelled))
    bench.stop()
    for name in names:
        kinds = bench.listeners[name].kinds
        if name in cancelled:
            assert len(kinds) == after_cancel[name], "an event came after the cancellation"
        else:
            assert kinds[0] == "Started"
            assert kinds[-1] == ("Interrupted" if name in poisoned else "Done")
        assert sum(kind in ("Done", "Interrupted") for kind in kinds) <= 1
        assert kinds.count("Started") <= 1
    assert (bench.engine.running, bench.engine.waiting) == (0, 0)
