"""Whose fault it is: a job's, the model's or the device's."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from engine_bench import Bench
from support.jobs import make_job
from support.virtual_backend import Listener, VirtualBackend

from deployments.contract.events import LAST, Done, Event
from deployments.engine.backend import DeviceBroken, NotFinite
from deployments.engine.failures import BROKEN, DEVICE_BROKEN, NOTHING_USABLE
from deployments.engine.loop import Engine

WAIT = 60.0
"""Seconds after which a threaded test gives up; none waits that long."""


def test_a_second_error_without_a_success_between_blames_nobody() -> None:
    bench = Bench(VirtualBackend(errors={("step", name): ValueError() for name in ("a", "b", "c")}))
    for name in ("a", "b", "good", "c"):
        bench.run(make_job(name))
    assert bench.last("a") == BROKEN
    assert bench.last("b") == replace(BROKEN, blame=False)
    assert isinstance(bench.last("good"), Done)
    assert bench.last("c") == BROKEN


def test_results_that_are_not_finite_are_errors_though_every_step_goes_well() -> None:
    bench = Bench(VirtualBackend(errors={("finish", name): NotFinite() for name in ("a", "b")}))
    for name in ("a", "b"):
        bench.run(make_job(name))
    assert (bench.last("a"), bench.last("b")) == (NOTHING_USABLE, replace(NOTHING_USABLE, blame=False))
    assert bench.engine.faults == 2
    bench.run(make_job("c"))
    assert bench.engine.faults == 0


@pytest.mark.parametrize("call", ["fetch", "encode", "step", "preview", "finish"])
def test_a_device_that_breaks_ends_every_job_at_once_and_blames_none(call: str) -> None:
    bench = Bench(VirtualBackend(errors={(call, "2"): DeviceBroken()}), preview_every=0.5)
    bench.learn()
    bench.run(*(make_job(str(n), size=64 + 8 * (n % 2)) for n in range(12)))
    ended = {name: bench.last(name) for name in bench.heard}
    assert {event for event in ended.values() if not isinstance(event, Done)} == {DEVICE_BROKEN}
    assert ended["2"] == DEVICE_BROKEN
    assert bench.backend.calls[-1][0] == call, "nothing is tried on the device after that"
    assert bench.engine.broken


def test_a_broken_engine_refuses_at_once_and_leaves_the_device_alone() -> None:
    bench = Bench(VirtualBackend(errors={("step", "a"): DeviceBroken()}))
    bench.run(make_job("a"))
    bench.backend.calls.clear()
    bench.submit(make_job("b"))
    assert bench.heard["b"].events == [DEVICE_BROKEN]
    assert bench.engine.step_once() is False
    assert bench.backend.calls == []


@pytest.mark.parametrize("call", ["fetch", "step"])
def test_threads_end_every_job_of_a_device_that_breaks(call: str) -> None:
    backend = VirtualBackend(errors={(call, "20"): DeviceBroken()})
    engine = Engine(backend, max_running=16, max_batch=8)
    engine.start()
    heard = [Listener() for _ in range(40)]
    ended = threading.Semaphore(0)

    def submit(n: int) -> None:
        def emit(event: Event) -> None:
            heard[n](event)
            if isinstance(event, LAST):
                ended.release()

        engine.submit(make_job(str(n), steps=2), emit)

    clients = [threading.Thread(target=submit, args=(n,)) for n in range(40)]
    for client in clients:
        client.start()
    for _ in heard:
        assert ended.acquire(timeout=WAIT), "a job was left without an end"
    assert engine.broken
    assert engine.stop(WAIT)
    last = [listener.events[-1] for listener in heard]
    assert last[20] == DEVICE_BROKEN
    assert {event for event in last if not isinstance(event, Done)} == {DEVICE_BROKEN}


def test_an_error_of_the_engine_itself_blames_no_job_among_several() -> None:
    entered, submitted = threading.Event(), threading.Event()

    def hold(call: str, names: list[str]) -> None:
        if names == ["first"] and call == "encode":
            entered.set()
            submitted.wait(WAIT)

    # An unhashable key breaks the engine's own bookkeeping, outside every backend call.
    backend = VirtualBackend(key=lambda job: [] if job.id == "bad" else "good", before=hold)  # type: ignore[arg-type]
    engine = Engine(backend, max_running=16, max_batch=8)
    engine.start()
    heard = {name: Listener() for name in ("first", "good", "bad")}
    ended = threading.Semaphore(0)
    for name, listener in heard.items():

        def emit(event: Event, listener: Listener = listener) -> None:
            listener(event)
            if isinstance(event, LAST):
                ended.release()

        engine.submit(make_job(name, steps=1_000_000 if name == "first" else 4), emit)
        assert entered.wait(WAIT)
    submitted.set()
    for _ in heard:
        assert ended.acquire(timeout=WAIT)
    assert engine.stop(WAIT)
    assert {listener.events[-1] for listener in heard.values()} == {replace(BROKEN, blame=False)}
    assert engine.faults == 1
