from __future__ import annotations

import fcntl
import multiprocessing
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.jobs import make_job
from support.virtual_backend import Listener, VirtualBackend, VirtualState

from deployments.contract.events import LAST, Event
from deployments.contract.job import GenerationJob
from deployments.contract.model import Sharing
from deployments.engine.device import priority_on
from deployments.engine.loop import Engine
from deployments.engine.requests import RequestHandle

LONG, NONE = 3600.0, 0.0


def waits(seconds: float, folder: Path, max_wait_s: float) -> bool:
    """Whether one that goes last would wait now."""
    last = priority_on(Sharing("gpu", "low", max_wait_s), folder)
    began = time.monotonic()
    last.wait()
    return time.monotonic() - began >= seconds


def claim_and_die(folder: Path) -> None:
    priority_on(Sharing("gpu", "high"), folder).announce(True)


def test_all_that_go_first_have_to_be_done(tmp_path: Path) -> None:
    firsts = [priority_on(Sharing("gpu", "high"), tmp_path) for _ in range(2)]
    for first in firsts:
        first.announce(True)
        first.announce(True)
        first.wait()
    firsts[0].announce(False)
    assert waits(0.05, tmp_path, max_wait_s=0.05)
    firsts[1].announce(False)
    firsts[1].announce(False)
    assert not waits(LONG, tmp_path, max_wait_s=LONG)


def test_those_that_go_last_do_not_wait_for_each_other(tmp_path: Path) -> None:
    other = priority_on(Sharing("gpu", "low", LONG), tmp_path)
    other.announce(True)
    other.wait()
    assert not waits(LONG, tmp_path, max_wait_s=LONG)


def test_another_device_is_another_matter(tmp_path: Path) -> None:
    first = priority_on(Sharing("other", "high"), tmp_path)
    first.announce(True)
    assert not waits(LONG, tmp_path, max_wait_s=LONG)


def test_a_claim_dies_with_its_process(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=claim_and_die, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert not waits(LONG, tmp_path, max_wait_s=LONG)


def test_one_that_goes_first_waits_for_nobody(tmp_path: Path) -> None:
    first = priority_on(Sharing("gpu", "high"), tmp_path)
    [lock] = tmp_path.iterdir()
    with lock.open("r+b") as frozen:
        fcntl.flock(frozen, fcntl.LOCK_EX)
        first.announce(True)
        first.wait()
    assert not waits(LONG, tmp_path, max_wait_s=LONG)
    first.announce(True)
    assert waits(0.05, tmp_path, max_wait_s=0.05)


WAIT = 60.0
"""Seconds after which a threaded test gives up; none waits that long."""


def threaded(backend: VirtualBackend) -> Engine[GenerationJob, VirtualState]:
    engine = Engine(backend, max_running=16, max_batch=8)
    engine.start()
    return engine


def test_threads_end_every_job_exactly_once() -> None:
    names = [str(n) for n in range(200)]
    poisoned = set(random.Random(1).sample(names, 10))
    cancelled = set(random.Random(2).sample(names, 40))
    backend = VirtualBackend(errors={("step", name): ValueError() for name in poisoned})
    engine = threaded(backend)
    heard = {name: Listener() for name in names}
    after_cancel: dict[str, int] = {}
    open_jobs = threading.Semaphore(0)

    def listen(name: str) -> Callable[[Event], None]:
        def emit(event: Event) -> None:
            heard[name](event)
            if isinstance(event, LAST):
                open_jobs.release()

        return emit

    def client(share: list[str], seed: int) -> None:
        rng = random.Random(seed)
        handles: dict[str, RequestHandle] = {}
        for name in share:
            steps = 500 if name in cancelled else rng.randint(1, 6)
            job = make_job(name, size=rng.choice([64, 128]), steps=steps, exclusive=rng.random() < 0.02)
            handles[name] = engine.submit(job, listen(name))
            # Some while the job waits, some in whatever call it is by then.
            victim = rng.choice(list(handles))
            if victim in cancelled and victim not in after_cancel:
                cancel(victim, handles[victim])
        for name in sorted(cancelled & set(handles) - set(after_cancel)):
            cancel(name, handles[name])

    def cancel(name: str, handle: RequestHandle) -> None:
        engine.cancel(handle)
        after_cancel[name] = len(heard[name].events)

    clients = [threading.Thread(target=client, args=(names[n::8], n)) for n in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(WAIT)
    for name in names:
        if name not in cancelled:
            assert open_jobs.acquire(timeout=WAIT), f"an event is missing at the turn of {name}"
    assert engine.stop(WAIT)
    for name in names:
        kinds = heard[name].kinds
        if name in cancelled:
            assert len(kinds) == after_cancel[name], "an event came after the cancellation"
        else:
            assert kinds[0] == "Started"
            assert kinds[-1] == ("Interrupted" if name in poisoned else "Done")
        assert sum(kind in ("Done", "Interrupted") for kind in kinds) <= 1
        assert kinds.count("Started") <= 1
    assert (engine.running, engine.waiting) == (0, 0)


def test_a_hung_call_shows_and_stop_gives_up_on_it() -> None:
    entered, release = threading.Event(), threading.Event()

    def hang(call: str, names: list[str]) -> None:
        if call == "encode":
            entered.set()
            release.wait(WAIT)

    engine = threaded(VirtualBackend(before=hang))
    listener = Listener()
    engine.submit(make_job("a"), listener)
    assert entered.wait(WAIT)
    assert engine.busy_since is not None
    assert engine.stop(timeout=0.0) is False
    release.set()
    assert engine.stop(WAIT)
    assert listener.kinds == ["Started"]
    with pytest.raises(RuntimeError, match="stopped"):
        engine.submit(make_job("b"), listener)


def test_the_loop_outlives_an_error_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    # An unhashable key breaks the engine's own bookkeeping, outside every backend call.
    engine = threaded(VirtualBackend(key=lambda job: [] if job.id == "bad" else "good"))  # type: ignore[arg-type]
    ended = {name: threading.Event() for name in ("bad", "good")}
    for name in ended:
        engine.submit(make_job(name), lambda event, name=name: ended[name].set() if _last(event) else None)
        assert ended[name].wait(WAIT)
    assert engine.stop(WAIT)
    assert "the engine's loop failed" in caplog.text


def _last(event: Event) -> bool:
    return isinstance(event, LAST)


def test_threads_and_single_rounds_do_not_mix() -> None:
    engine = threaded(VirtualBackend())
    with pytest.raises(RuntimeError, match="threads"):
        engine.step_once()
    with pytest.raises(RuntimeError, match="once"):
        engine.start()
    assert engine.stop(WAIT)
