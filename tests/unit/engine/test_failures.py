from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from engine_bench import Bench
from support.jobs import make_job
from support.virtual_backend import VirtualBackend

from deployments.contract.counts import OUT_OF_MEMORY
from deployments.contract.events import Done, Event, Failed, Progress
from deployments.engine.backend import JobError, OutOfMemory
from deployments.engine.failures import BROKEN, NO_MEMORY, NO_ROOM


def test_a_listener_that_raises_loses_its_job_alone(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(VirtualBackend(), max_running=2)
    calls: list[Event] = []

    def deaf(event: Event) -> None:
        calls.append(event)
        if isinstance(event, Progress):
            raise RuntimeError("the event loop is closed")

    bench.engine.submit(make_job("a", steps=1), deaf)
    bench.run(make_job("b"), make_job("c"))
    assert [type(event).__name__ for event in calls] == ["Started", "Progress"]
    assert bench.done() == {"b", "c"}
    assert "listener of job a failed" in caplog.text


def test_a_step_out_of_memory_shrinks_the_batch_and_loses_nothing() -> None:
    bench = Bench(VirtualBackend())
    bench.learn()
    bench.backend.room["step"] = 3
    bench.run(*(make_job(str(n)) for n in range(8)))
    sizes = [len(names) for names in bench.backend.named("step")]
    assert sizes[:3] == [8, 4, 2], "two failures, then what fits"
    assert set(sizes[2:]) == {2}, "and the limit is remembered"
    assert len(bench.done()) == 8


def test_a_picture_that_does_not_fit_alone_fails() -> None:
    bench = Bench(VirtualBackend(errors={("step", "huge"): OutOfMemory()}))
    bench.learn()
    bench.run(make_job("a"), make_job("huge", width=4096), make_job("b"))
    assert bench.last("huge") == NO_MEMORY
    assert bench.done() == {"a", "b"}
    assert bench.engine.faults == 0
    assert bench.engine.counts[OUT_OF_MEMORY] == 1


@pytest.mark.parametrize("call", ["encode", "step", "finish"])
@pytest.mark.parametrize("crowded", [False, True])
def test_memory_that_was_there_before_or_is_others_is_no_fault_of_the_job(call: str, crowded: bool) -> None:
    """It is tried again, without blame: on this device another time, or on another device."""
    bench = Bench(VirtualBackend(errors={(call, "b"): OutOfMemory(crowded=crowded)}))
    if not crowded:
        bench.run(make_job("a", width=1024))
    bench.run(make_job("b"))
    assert bench.last("b") == NO_ROOM


def test_encode_out_of_memory_tries_smaller_parts_and_remembers() -> None:
    bench = Bench(VirtualBackend(room={"encode": 2}))
    bench.run(*(make_job(str(n)) for n in range(8)))
    assert [len(names) for names in bench.backend.named("encode")] == [8, 4, 2, 2, 4, 2, 2]
    assert len(bench.done()) == 8
    bench.backend.calls.clear()
    bench.run(*(make_job(name) for name in "wxyz"))
    assert bench.backend.named("encode") == [["w", "x"], ["y", "z"]]


def test_one_job_too_large_to_encode_fails_and_leaves_the_batch_as_it_was() -> None:
    bench = Bench(VirtualBackend(errors={("encode", "huge"): OutOfMemory()}))
    bench.run(make_job("a"), make_job("huge"), make_job("b"), make_job("c"))
    assert bench.last("huge") == NO_MEMORY
    assert bench.done() == {"a", "b", "c"}
    bench.backend.calls.clear()
    bench.run(*(make_job(name) for name in "stuvwxyz"))
    assert [len(names) for names in bench.backend.named("encode")] == [8]


def test_finish_out_of_memory_is_tried_once_more_between_steps() -> None:
    backend = VirtualBackend(errors={("finish", "a"): OutOfMemory(), ("finish", "b"): OutOfMemory()})
    bench = Bench(backend)

    def relent(call: str, names: list[str]) -> None:
        if call == "finish" and backend.named("finish").count(["a"]) == 2:
            backend.errors.pop(("finish", "a"), None)

    backend.before = relent
    bench.run(make_job("a"), make_job("b", width=4096))
    assert isinstance(bench.last("a"), Done)
    assert bench.last("b") == NO_MEMORY
    assert backend.named("finish").count(["b"]) == 2


@pytest.mark.parametrize("call", ["encode", "finish"])
def test_a_job_at_fault_fails_with_its_reason(call: str) -> None:
    bench = Bench(VirtualBackend(errors={(call, "bad"): JobError("the mask is empty")}))
    bench.run(make_job("a"), make_job("bad"), make_job("b"))
    assert bench.last("bad") == Failed("the mask is empty")
    assert bench.done() == {"a", "b"}
    assert len(bench.backend.named("encode")) == 1
    assert bench.engine.faults == 0


@pytest.mark.parametrize("call", ["encode", "step", "finish"])
def test_a_poisoned_job_fails_alone(call: str, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(VirtualBackend(errors={(call, "bad"): ValueError("/srv/internal")}))
    bench.learn()
    bench.run(make_job("a"), make_job("bad"), make_job("b"))
    assert bench.last("bad") == BROKEN
    assert bench.done() == {"a", "b"}
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.message == "job bad failed"
    assert record.exc_info


def test_a_batch_size_that_fails_though_no_member_is_bad_is_not_asked_for_again() -> None:
    backend = VirtualBackend()
    bench = Bench(backend)
    bench.learn()

    def refuse_eight(call: str, names: list[str]) -> None:
        if call == "step" and len(names) == 8:
            raise ValueError("no kernel for this shape")

    backend.before = refuse_eight
    bench.run(*(make_job(str(n)) for n in range(8)))
    assert [len(names) for names in backend.named("step")].count(8) == 1
    assert len(bench.done()) == 8


def test_wrong_number_of_states_fails_the_jobs_not_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(VirtualBackend())
    monkeypatch.setattr(bench.backend, "encode", lambda jobs: [])
    bench.run(make_job("a"), make_job("b"))
    assert (bench.last("a"), bench.last("b")) == (BROKEN, replace(BROKEN, blame=False))
    assert bench.engine.faults == 2
    monkeypatch.undo()
    bench.run(make_job("c"))
    assert bench.engine.faults == 0
