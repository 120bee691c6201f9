"""Failures of jobs, models and devices, and which of them blame a job."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

import pytest
from engine_bench import WAIT, Bench, Threaded
from support.jobs import make_job
from support.virtual_backend import VirtualBackend

from deployments.backend import DeviceBroken, JobError, NotFinite, OutOfMemory
from deployments.contract.counts import OUT_OF_MEMORY
from deployments.contract.events import Done, Event, Failed, Interrupted, Progress
from deployments.engine.requests import BROKEN, DEVICE_BROKEN, MEMORY_BUSY, NO_MEMORY, NOTHING_USABLE


def test_raising_listener_loses_only_its_job(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(VirtualBackend(), max_running=2)
    calls: list[Event] = []

    def raise_on_progress(event: Event) -> None:
        calls.append(event)
        if isinstance(event, Progress):
            raise RuntimeError("the event loop is closed")

    bench.engine.submit(make_job("a", steps=1), raise_on_progress)
    bench.run(make_job("b"), make_job("c"))
    assert [type(event).__name__ for event in calls] == ["Started", "Progress"]
    assert bench.done() == {"b", "c"}
    assert "listener of job a failed" in caplog.text


def test_step_out_of_memory_shrinks_the_batch() -> None:
    bench = Bench(VirtualBackend())
    bench.learn()
    bench.backend.max_batch["step"] = 3
    bench.run(*(make_job(str(n)) for n in range(8)))
    sizes = [len(names) for names in bench.backend.batches("step")]
    assert sizes[:3] == [8, 4, 2], "two failures, then a batch that fits"
    assert set(sizes[2:]) == {2}, "the limit is kept"
    assert len(bench.done()) == 8


def test_image_that_does_not_fit_alone_fails() -> None:
    bench = Bench(VirtualBackend(errors={("step", "huge"): OutOfMemory()}))
    bench.learn()
    bench.run(make_job("a"), make_job("huge", width=4096), make_job("b"))
    assert bench.last("huge") == NO_MEMORY
    assert bench.done() == {"a", "b"}
    assert bench.engine.health.faults == 0
    assert bench.engine.counts[OUT_OF_MEMORY] == 1


@pytest.mark.parametrize("call", ["encode", "step", "finish"])
@pytest.mark.parametrize("crowded", [False, True])
def test_memory_of_others_is_not_the_jobs_fault(call: str, crowded: bool) -> None:
    """The job is retried without blame."""
    bench = Bench(VirtualBackend(errors={(call, "b"): OutOfMemory(shared_gpu_memory=crowded)}))
    if not crowded:
        bench.run(make_job("a", width=1024))
    bench.run(make_job("b"))
    assert bench.last("b") == MEMORY_BUSY


def test_encode_out_of_memory_shrinks_the_batch() -> None:
    bench = Bench(VirtualBackend(max_batch={"encode": 2}))
    bench.run(*(make_job(str(n)) for n in range(8)))
    assert [len(names) for names in bench.backend.batches("encode")] == [8, 4, 2, 2, 4, 2, 2]
    assert len(bench.done()) == 8
    bench.backend.calls.clear()
    bench.run(*(make_job(name) for name in "wxyz"))
    assert bench.backend.batches("encode") == [["w", "x"], ["y", "z"]]


def test_job_too_large_to_encode_keeps_the_batch_limit() -> None:
    bench = Bench(VirtualBackend(errors={("encode", "huge"): OutOfMemory()}))
    bench.run(make_job("a"), make_job("huge"), make_job("b"), make_job("c"))
    assert bench.last("huge") == NO_MEMORY
    assert bench.done() == {"a", "b", "c"}
    bench.backend.calls.clear()
    bench.run(*(make_job(name) for name in "stuvwxyz"))
    assert [len(names) for names in bench.backend.batches("encode")] == [8]


def test_finish_out_of_memory_is_retried_once() -> None:
    backend = VirtualBackend(errors={("finish", "a"): OutOfMemory(), ("finish", "b"): OutOfMemory()})
    bench = Bench(backend)

    def relent(call: str, names: list[str]) -> None:
        if call == "finish" and backend.batches("finish").count(["a"]) == 2:
            backend.errors.pop(("finish", "a"), None)

    backend.before = relent
    bench.run(make_job("a"), make_job("b", width=4096))
    assert isinstance(bench.last("a"), Done)
    assert bench.last("b") == NO_MEMORY
    assert backend.batches("finish").count(["b"]) == 2


@pytest.mark.parametrize("call", ["encode", "finish"])
def test_job_error_fails_the_job_with_its_reason(call: str) -> None:
    bench = Bench(VirtualBackend(errors={(call, "bad"): JobError("the mask is empty")}))
    bench.run(make_job("a"), make_job("bad"), make_job("b"))
    assert bench.last("bad") == Failed("the mask is empty")
    assert bench.done() == {"a", "b"}
    assert len(bench.backend.batches("encode")) == 1
    assert bench.engine.health.faults == 0


@pytest.mark.parametrize("call", ["encode", "step", "finish"])
def test_poisoned_job_fails_alone(call: str, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(VirtualBackend(errors={(call, "bad"): ValueError("/srv/internal")}))
    bench.learn()
    bench.run(make_job("a"), make_job("bad"), make_job("b"))
    assert bench.last("bad") == BROKEN
    assert bench.done() == {"a", "b"}
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.message == "job bad failed"
    assert record.exc_info


def test_failing_batch_size_is_not_tried_again() -> None:
    backend = VirtualBackend()
    bench = Bench(backend)
    bench.learn()

    def refuse_eight(call: str, names: list[str]) -> None:
        if call == "step" and len(names) == 8:
            raise ValueError("no kernel for this shape")

    backend.before = refuse_eight
    bench.run(*(make_job(str(n)) for n in range(8)))
    assert [len(names) for names in backend.batches("step")].count(8) == 1
    assert len(bench.done()) == 8


def test_wrong_number_of_states_fails_only_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(VirtualBackend())
    monkeypatch.setattr(bench.backend, "encode", lambda jobs: [])
    bench.run(make_job("a"), make_job("b"))
    assert (bench.last("a"), bench.last("b")) == (BROKEN, replace(BROKEN, blame=False))
    assert bench.engine.health.faults == 2
    monkeypatch.undo()
    bench.run(make_job("c"))
    assert bench.engine.health.faults == 0


@pytest.mark.parametrize(
    ("call", "error", "event"), [("step", ValueError(), BROKEN), ("finish", NotFinite(), NOTHING_USABLE)]
)
def test_second_error_in_a_row_blames_no_job(call: str, error: Exception, event: Interrupted) -> None:
    bench = Bench(VirtualBackend(errors={(call, name): error for name in ("a", "b", "c")}))
    for name, faults in (("a", 1), ("b", 2), ("good", 0), ("c", 1)):
        bench.run(make_job(name))
        assert bench.engine.health.faults == faults
    assert [bench.last(name) for name in ("a", "b", "c")] == [event, replace(event, blame=False), event]
    assert isinstance(bench.last("good"), Done)


@pytest.mark.parametrize("call", ["fetch", "encode", "step", "preview", "finish"])
def test_broken_device_ends_all_jobs_without_blame(call: str) -> None:
    bench = Bench(VirtualBackend(errors={(call, "2"): DeviceBroken()}), preview_every=0.5)
    bench.learn()
    bench.run(*(make_job(str(n), size=64 + 8 * (n % 2)) for n in range(12)))
    last_events = {name: bench.last(name) for name in bench.listeners}
    assert {event for event in last_events.values() if not isinstance(event, Done)} == {DEVICE_BROKEN}
    assert last_events["2"] == DEVICE_BROKEN
    assert bench.backend.calls[-1][0] == call, "the device was used after that"
    assert bench.engine.health.broken


def test_broken_engine_rejects_new_jobs() -> None:
    bench = Bench(VirtualBackend(errors={("step", "a"): DeviceBroken()}))
    bench.run(make_job("a"))
    bench.backend.calls.clear()
    bench.submit(make_job("b"))
    assert bench.listeners["b"].events == [DEVICE_BROKEN]
    assert bench.engine.step_once() is False
    assert bench.backend.calls == []


@pytest.mark.parametrize("call", ["fetch", "step"])
def test_threads_end_every_job_of_a_broken_device(call: str) -> None:
    bench = Threaded(VirtualBackend(errors={(call, "20"): DeviceBroken()}))
    jobs = [make_job(str(n), steps=2) for n in range(40)]
    clients = [threading.Thread(target=bench.submit, args=(job,)) for job in jobs]
    for client in clients:
        client.start()
    bench.await_ends(40)
    assert bench.engine.health.broken
    bench.stop()
    last = [bench.last(job.id) for job in jobs]
    assert last[20] == DEVICE_BROKEN
    assert {event for event in last if not isinstance(event, Done)} == {DEVICE_BROKEN}


def test_engine_error_blames_no_job() -> None:
    entered, submitted = threading.Event(), threading.Event()

    def hold(call: str, names: list[str]) -> None:
        if names == ["first"] and call == "encode":
            entered.set()
            submitted.wait(WAIT)

    # An unhashable key breaks the engine's own bookkeeping, outside every backend call.
    bench = Threaded(VirtualBackend(key=lambda job: [] if job.id == "bad" else "good", before=hold))  # type: ignore[arg-type]
    bench.submit(make_job("first", steps=1_000_000))
    assert entered.wait(WAIT)
    bench.submit(make_job("good"), make_job("bad"))
    submitted.set()
    bench.await_ends(3)
    assert {bench.last(name) for name in bench.listeners} == {replace(BROKEN, blame=False)}
    assert bench.engine.health.faults == 1
    bench.submit(make_job("later"))
    bench.await_ends(1)
    bench.stop()
    assert isinstance(bench.last("later"), Done)
