"""Slow stores do not stop steps, and other work on the device does not fail them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest
from engine_bench import WAIT, Bench, Threaded
from support.jobs import make_job
from support.virtual_backend import VirtualBackend, VirtualState

from deployments.backend import JobError, OutOfMemory, Unavailable
from deployments.contract.events import Done, Event, Failed, Preview
from deployments.engine import workers
from deployments.engine.device import DeviceGate
from deployments.engine.requests import MEMORY_BUSY, STORAGE_UNREACHABLE


@dataclass
class BlockedCall:
    """Blocks calls of one name until `steps` steps have run."""

    call: str
    steps: int
    entered: threading.Event = field(default_factory=threading.Event)
    passed: threading.Event = field(default_factory=threading.Event)

    def __call__(self, call: str, names: list[str]) -> None:
        if call == self.call and names == ["slow"]:
            self.entered.set()
            assert self.passed.wait(WAIT), "no steps ran meanwhile"
        elif call == "step" and self.entered.is_set():
            self.steps -= 1
            if self.steps == 0:
                self.passed.set()


@pytest.mark.parametrize("call", ["fetch", "store"])
def test_steps_continue_while_a_job_waits_for_the_store(call: str) -> None:
    bench = Threaded(VirtualBackend(before=BlockedCall(call, steps=100)))
    bench.submit(make_job("other", steps=1_000_000), make_job("slow", steps=1))
    bench.await_ends(1)
    bench.stop()
    assert isinstance(bench.last("slow"), Done)


def test_previews_are_stored_one_at_a_time_beside_steps() -> None:
    held, backend = BlockedCall("preview stored", steps=50), VirtualBackend()
    shown: list[int] = []

    def slow_preview(state: VirtualState):
        step = state.done_steps

        def store() -> Preview:
            held("preview stored", [state.job.id])
            shown.append(step)
            return Preview("preview", step, state.total_steps)

        return store

    backend.before = held
    backend.preview = slow_preview  # type: ignore[method-assign]
    bench = Threaded(backend, preview_every=0.001)
    bench.submit(make_job("slow", steps=1000))
    bench.await_ends(1)
    bench.stop()
    assert isinstance(bench.last("slow"), Done)
    assert shown == sorted(shown), "an older preview came after a newer one"
    assert len(shown) <= 1000 - 50


@pytest.mark.parametrize(("limit", "stored"), [(workers.MAX_STORING, 12), (3, 3)])
def test_jobs_being_stored_free_their_slots_up_to_a_limit(
    limit: int, stored: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MAX_STORING", limit)
    started, release = threading.Semaphore(0), threading.Event()

    def wait(call: str, names: list[str]) -> None:
        if call == "store":
            started.release()
            release.wait(WAIT)

    backend = VirtualBackend(before=wait)
    bench = Threaded(backend, max_running=2, max_batch=2)
    bench.submit(*(make_job(str(number), steps=1) for number in range(12)))
    for _ in range(stored):
        assert started.acquire(timeout=WAIT), "not all are stored at once"
    assert len(backend.batches("finish")) == stored
    assert stored < 12 or bench.engine.running == 12
    release.set()
    bench.await_ends(12)
    bench.stop()
    assert len(backend.batches("store")) == 12


@pytest.mark.parametrize(
    ("call", "error", "event"),
    [
        ("fetch", JobError("an input is gone"), Failed("an input is gone")),
        ("fetch", Unavailable("s3"), STORAGE_UNREACHABLE),
        ("store", Unavailable("s3"), STORAGE_UNREACHABLE),
    ],
)
def test_failed_fetch_or_store_ends_only_its_job(call: str, error: Exception, event: Event) -> None:
    bench = Bench(VirtualBackend(errors={(call, "bad"): error}))
    bench.run(make_job("bad"), make_job("good"))
    assert bench.last("bad") == event
    assert call == "store" or bench.listeners["bad"].kinds == [type(event).__name__], "it must not start"
    assert bench.done() == {"good"}
    assert bench.engine.health.faults == 0


def test_fetching_ahead_is_bounded() -> None:
    bench = Bench(VirtualBackend(), max_running=2)
    bench.submit(*(make_job(str(number)) for number in range(6)))
    bench.engine.step_once()
    assert bench.backend.batches("fetch") == [["0"], ["1"]]


def test_exclusive_device_use_waits_for_one_step() -> None:
    device, order = DeviceGate(), list[str]()
    stepping, wanted = threading.Event(), threading.Event()

    def steps() -> None:
        for number in range(3):
            with device.step():
                stepping.set()
                if number == 0:
                    assert wanted.wait(WAIT)
                order.append("step")

    def alone() -> None:
        with device.exclusive():
            order.append("alone")

    stepper, other = threading.Thread(target=steps), threading.Thread(target=alone)
    stepper.start()
    assert stepping.wait(WAIT)
    other.start()
    while not device._exclusive:  # it has said that it wants to
        pass
    wanted.set()
    for thread in (stepper, other):
        thread.join(WAIT)
    assert order == ["step", "alone", "step", "step"]


class Crowded:
    """Finishes one image once all `others` step together. No step fits beside it; it ends after one was tried."""

    def __init__(self, others: int) -> None:
        self._others = others
        self._together, self._finishing, self._tried = threading.Event(), threading.Event(), threading.Event()
        self.sizes: list[int] = []
        """Batch sizes of the later steps; `enough` is set after a hundred."""
        self.enough = threading.Event()

    def __call__(self, call: str, names: list[str]) -> None:
        if call == "finish" and names == ["large"]:
            assert self._together.wait(WAIT)
            self._finishing.set()
            assert self._tried.wait(WAIT)
            self._finishing.clear()
        elif call == "step" and self._tried.is_set():
            self.sizes.append(len(names))
            if len(self.sizes) == 100:
                self.enough.set()
        elif call == "step" and self._finishing.is_set():
            self._tried.set()
            raise OutOfMemory
        elif call == "step" and len(names) == self._others and "large" not in names:
            self._together.set()


@pytest.mark.parametrize("others", [1, 6])
def test_step_out_of_memory_beside_other_work_runs_alone(others: int) -> None:
    crowded = Crowded(others)
    backend = VirtualBackend(before=crowded)
    # On the virtual clock a full batch always pays; real times of such steps would be noise.
    bench = Threaded(backend, clock=backend.clock)
    bench.submit(make_job("large", steps=1), *(make_job(str(n), steps=1_000_000) for n in range(others)))
    assert crowded.enough.wait(WAIT)
    bench.await_ends(1)
    bench.stop()
    assert isinstance(bench.last("large"), Done)
    assert set(crowded.sizes[:100]) == {others}, "the batch limit changed"


def test_fetch_out_of_memory_is_retried_alone() -> None:
    tries: list[str] = []

    def crowded(call: str, names: list[str]) -> None:
        if call == "fetch":
            tries.extend(names)
            if tries.count(names[0]) == 1:
                raise OutOfMemory

    bench = Bench(VirtualBackend(before=crowded))
    bench.run(make_job("a"))
    assert bench.done() == {"a"}
    full = Bench(VirtualBackend(errors={("fetch", "a"): OutOfMemory()}))
    full.run(make_job("a"))
    assert full.last("a") == MEMORY_BUSY


def test_job_cancelled_during_the_wait_takes_no_step() -> None:
    class Busy:
        """Cancels a job while the engine waits for the device."""

        def announce(self, working: bool) -> None: ...

        def wait(self) -> None:
            bench.engine.cancel(bench.handles["gone"])

    backend = VirtualBackend()
    bench = Bench(backend, device_priority=Busy())
    bench.run(make_job("gone"), make_job("stays"))
    assert backend.batches("step")
    assert not any("gone" in names for names in backend.batches("step"))


def test_step_alone_runs_before_later_work() -> None:
    device, order = DeviceGate(), list[str]()
    inside, leave, waiting = threading.Event(), threading.Event(), threading.Event()

    def work(name: str) -> None:
        with device.shared():
            order.append(name)
            inside.set()
            leave.wait(WAIT)

    def step() -> None:
        waiting.set()
        with device.step(exclusive=True) as overlapped:
            order.append("step")
            assert not overlapped()

    first = threading.Thread(target=work, args=("first",))
    first.start()
    assert inside.wait(WAIT)
    alone = threading.Thread(target=step)
    alone.start()
    assert waiting.wait(WAIT)
    while not device._exclusive_step:
        pass
    second = threading.Thread(target=work, args=("second",))
    second.start()
    leave.set()
    for thread in (first, alone, second):
        thread.join(WAIT)
    assert order == ["first", "step", "second"]
