"""Memory that other work has at the moment is no fault of what steps, or is fetched, beside it."""

from __future__ import annotations

import threading

import pytest
from engine_bench import Bench
from support.jobs import make_job
from support.virtual_backend import Listener, VirtualBackend
from test_waiting_for_others import WAIT

from deployments.contract.events import Done
from deployments.engine.backend import OutOfMemory
from deployments.engine.exclusive import Exclusive
from deployments.engine.failures import NO_ROOM
from deployments.engine.loop import Engine


class Crowded:
    """Once all `others` step together one picture is finished, beside which no step fits; that goes on until one was
    tried."""

    def __init__(self, others: int) -> None:
        self._others = others
        self._together, self._finishing, self._tried = threading.Event(), threading.Event(), threading.Event()
        self.sizes: list[int] = []
        """Of the steps since, `enough` after a hundred."""
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
def test_a_step_that_does_not_fit_beside_other_work_is_taken_without_it(others: int) -> None:
    crowded, done = Crowded(others), threading.Event()
    backend = VirtualBackend(before=crowded)
    # On the virtual clock all of them pay, always: on a real one what such steps cost is noise.
    engine = Engine(backend, max_running=16, max_batch=8, clock=backend.clock)
    engine.submit(make_job("large", steps=1), lambda event: done.set() if isinstance(event, Done) else None)
    for n in range(others):
        engine.submit(make_job(str(n), steps=1_000_000), Listener())
    engine.start()
    assert crowded.enough.wait(WAIT)
    assert done.wait(WAIT)
    assert engine.stop(WAIT)
    assert set(crowded.sizes[:100]) == {others}, "nothing was learnt from it"


def test_what_a_job_needs_on_the_device_is_fetched_again_without_steps_beside_it() -> None:
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
    assert full.last("a") == NO_ROOM


def test_who_waited_for_the_device_steps_with_those_that_are_there_then() -> None:
    class Busy:
        """Others have it, while one job is cancelled."""

        def announce(self, working: bool) -> None: ...

        def wait(self) -> None:
            bench.engine.cancel(bench.handles["gone"])

    backend = VirtualBackend()
    bench = Bench(backend, device_priority=Busy())
    bench.run(make_job("gone"), make_job("stays"))
    assert backend.named("step")
    assert not any("gone" in names for names in backend.named("step"))


def test_a_step_alone_waits_for_other_work_and_goes_before_what_comes() -> None:
    device, order = Exclusive(), list[str]()
    inside, leave, waiting = threading.Event(), threading.Event(), threading.Event()

    def work(name: str) -> None:
        with device.beside():
            order.append(name)
            inside.set()
            leave.wait(WAIT)

    def step() -> None:
        waiting.set()
        with device.step(alone=True) as accompanied:
            order.append("step")
            assert not accompanied()

    first = threading.Thread(target=work, args=("first",))
    first.start()
    assert inside.wait(WAIT)
    alone = threading.Thread(target=step)
    alone.start()
    assert waiting.wait(WAIT)
    while not device._solitary:
        pass
    second = threading.Thread(target=work, args=("second",))
    second.start()
    leave.set()
    for thread in (first, alone, second):
        thread.join(WAIT)
    assert order == ["first", "step", "second"]
