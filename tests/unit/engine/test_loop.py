from __future__ import annotations

from itertools import pairwise

import pytest
from engine_bench import Bench
from support.jobs import make_job
from support.virtual_backend import VirtualBackend

from deployments.contract.events import Done, Event, Failed, Preview, Progress
from deployments.engine.requests import DEADLINE_PASSED, PROGRESS_INTERVAL

NO_TIME = {"step_seconds": lambda key, batch: 0.0, "encode_seconds": lambda batch: 0.0}


def test_events_come_in_order() -> None:
    events_at_encode: list[list[str]] = []
    backend = VirtualBackend(step_seconds=lambda key, batch: PROGRESS_INTERVAL)
    bench = Bench(backend)
    backend.before = lambda call, names: (
        events_at_encode.append(bench.listeners["a"].kinds) if call == "encode" else None
    )
    bench.run(make_job("a", steps=2))
    assert events_at_encode == [["Started"]]
    assert bench.listeners["a"].kinds == ["Started", "Progress", "Progress", "Done"]
    progress = [event for event in bench.listeners["a"].events if isinstance(event, Progress)]
    assert [event.fraction for event in progress] == [0.5, 1.0]
    assert progress[-1].step_timing == (1, pytest.approx(PROGRESS_INTERVAL))


def test_progress_is_throttled_and_never_falls() -> None:
    backend = VirtualBackend(step_seconds=lambda key, batch: 0.01)
    bench = Bench(backend)
    events: list[tuple[float, float]] = []

    def listen(event: Event) -> None:
        if isinstance(event, Progress):
            events.append((backend.clock(), event.fraction))

    bench.engine.submit(make_job("a", steps=200), listen)
    bench.engine.run_until_idle()
    times, fractions = zip(*events, strict=True)
    assert 7 <= len(times) <= 9, "two seconds, four events a second"
    assert all(later - sooner >= PROGRESS_INTERVAL for sooner, later in pairwise(times))
    assert list(fractions) == sorted(set(fractions))


def test_jobs_join_and_leave_between_steps() -> None:
    bench = Bench(VirtualBackend())
    bench.learn()
    bench.submit(make_job("a", steps=4), make_job("b", steps=2))
    bench.engine.step_once()
    bench.submit(make_job("c", steps=2))
    bench.engine.run_until_idle()
    steps = [sorted(batch) for batch in bench.backend.batches("step")]
    assert steps == [["a", "b"], ["a", "b", "c"], ["a", "c"], ["a"]]


def test_waiting_jobs_are_encoded_together() -> None:
    bench = Bench(VirtualBackend(), max_running=6, max_batch=4)
    bench.submit(*(make_job(str(n)) for n in range(10)))
    bench.engine.step_once()
    assert (bench.engine.running, bench.engine.waiting) == (4, 6)
    bench.engine.step_once()
    assert (bench.engine.running, bench.engine.waiting) == (6, 4)
    bench.engine.run_until_idle()
    assert [len(names) for names in bench.backend.batches("encode")[:2]] == [4, 2]
    assert len(bench.done()) == 10


def test_exclusive_job_runs_alone() -> None:
    present: list[int] = []
    backend = VirtualBackend()
    bench = Bench(backend)
    backend.before = lambda call, names: (
        present.append(bench.engine.running) if "alone" in names and call != "fetch" else None
    )
    bench.run(make_job("a"), make_job("alone", exclusive=True), make_job("b"))
    assert set(present) == {1}
    order = [(call, name) for call, names in backend.calls for name in names]
    assert order.index(("finish", "a")) < order.index(("encode", "alone"))
    assert order.index(("finish", "alone")) < order.index(("encode", "b"))
    assert bench.done() == {"a", "alone", "b"}


def test_cancelled_waiting_job_has_no_events() -> None:
    bench = Bench(VirtualBackend())
    bench.submit(make_job("a"), make_job("b"))
    bench.engine.cancel(bench.handles["a"])
    assert bench.engine.waiting == 1
    bench.engine.run_until_idle()
    assert bench.listeners["a"].events == []
    assert bench.backend.batches("encode") == [["b"]]


def test_cancel_between_steps_frees_the_slot() -> None:
    bench = Bench(VirtualBackend(), max_running=1)
    bench.submit(make_job("a", steps=50), make_job("b", steps=1))
    bench.engine.step_once()
    events = list(bench.listeners["a"].events)
    bench.engine.cancel(bench.handles["a"])
    assert bench.engine.running == 0
    bench.engine.run_until_idle()
    assert bench.backend.batches("step") == [["a"], ["b"]]
    assert bench.listeners["a"].events == events
    bench.engine.cancel(bench.handles["b"])
    assert isinstance(bench.last("b"), Done)


@pytest.mark.parametrize("during", ["encode", "step", "finish"])
def test_cancel_during_a_call_ends_the_job_silently(during: str) -> None:
    backend = VirtualBackend(step_seconds=lambda key, batch: 1.0)
    bench = Bench(backend)
    events: list[str] = []

    def cancel(call: str, names: list[str]) -> None:
        if call == during and "a" in names and not bench.handles["a"].ended:
            bench.engine.cancel(bench.handles["a"])
            events.extend(bench.listeners["a"].kinds)

    backend.before = cancel
    bench.run(make_job("a", steps=2), make_job("b", steps=2))
    assert bench.listeners["a"].kinds == events
    with_a = [call for call, names in backend.calls if "a" in names]
    assert with_a.index(during) == len(with_a) - 1, "a later call has the cancelled job"
    assert isinstance(bench.last("b"), Done)


def test_deadline_ends_jobs_between_steps() -> None:
    bench = Bench(VirtualBackend(step_seconds=lambda key, batch: 1.0), max_running=1)
    bench.run(
        make_job("running", steps=100, remaining_s=3.5),
        make_job("waiting", steps=1, remaining_s=2.0),
        make_job("over", remaining_s=0.0),
        make_job("without limit", steps=1),
    )
    assert bench.last("running") == DEADLINE_PASSED
    assert len([names for names in bench.backend.batches("step") if names == ["running"]]) == 4
    assert bench.last("over") == DEADLINE_PASSED
    assert ["over"] not in bench.backend.batches("step")
    assert bench.done() == {"waiting", "without limit"}


def make_trained_bench() -> Bench:
    """Returns an engine that has measured one second for a step of one image."""
    bench = Bench(VirtualBackend(step_seconds=lambda key, batch: 0.5 + 0.5 * batch))
    bench.learn()
    bench.run(make_job("alone", steps=64))
    bench.backend.calls.clear()
    bench.listeners.clear()
    return bench


def test_job_that_cannot_meet_its_deadline_takes_no_step() -> None:
    bench = make_trained_bench()
    bench.run(make_job("long", steps=400, remaining_s=200.0), make_job("short", steps=4, remaining_s=200.0))
    assert isinstance(bench.last("short"), Done)
    failed = bench.last("long")
    assert isinstance(failed, Failed)
    assert failed.reason == (
        "this can't be done before its deadline: it would take 7 minutes more, and 3 minutes are left; "
        "fewer steps or a smaller size take less"
    )
    assert not any("long" in names for names in bench.backend.batches("step"))


def test_late_job_ends_once_its_deadline_is_unreachable() -> None:
    bench = make_trained_bench()
    bench.run(make_job("behind", steps=240, remaining_s=200.0))
    assert isinstance(bench.last("behind"), Failed)
    assert 120 <= len(bench.backend.batches("step")) <= 121, "120 seconds are needed and 80 are left"


def test_estimate_counts_only_steps_of_the_same_key() -> None:
    """The parts of a video are written after its denoising and take another time."""
    bench = make_trained_bench()
    bench.backend.steps_alike = 4
    bench.run(make_job("video", steps=100, remaining_s=90.0))
    assert bench.last("video") == DEADLINE_PASSED
    assert len(bench.backend.batches("step")) >= 90


def test_failed_previews_do_not_fail_the_job() -> None:
    errors: dict[tuple[str, str], Exception] = {("preview", "b"): ValueError()}
    bench = Bench(VirtualBackend(errors=errors, **NO_TIME), preview_every=0.25)
    bench.run(make_job("a", steps=8), make_job("b", steps=8))
    assert bench.listeners["a"].kinds == ["Started", "Progress", "Preview", "Preview", "Preview", "Done"]
    assert "Preview" not in bench.listeners["b"].kinds
    assert bench.done() == {"a", "b"}


def test_previews_keep_their_interval() -> None:
    backend = VirtualBackend(encode_seconds=lambda batch: 0.25, step_seconds=lambda key, batch: 0.5)
    bench = Bench(backend, preview_every=0.1, preview_interval_s=1.0)
    bench.run(make_job("a", steps=10))
    previews = [event.step for event in bench.listeners["a"].events if isinstance(event, Preview)]
    assert previews == [2, 4, 6, 8]


def test_busy_since_is_the_start_of_the_current_call() -> None:
    seen: list[tuple[str, bool]] = []
    backend = VirtualBackend()
    bench = Bench(backend)
    backend.before = lambda call, names: seen.append((call, bench.engine.health.busy_since == backend.clock()))
    bench.run(make_job("a", steps=1))
    assert seen == [("fetch", False), ("encode", True), ("step", True), ("finish", True), ("store", False)]


def test_engine_settings_out_of_range_are_rejected() -> None:
    for max_running, max_batch, preview_every in ((0, 1, None), (1, 0, None), (1, 1, 0.0), (1, 1, 1.5)):
        with pytest.raises(ValueError, match="max_running"):
            Bench(VirtualBackend(), max_running=max_running, max_batch=max_batch, preview_every=preview_every)


def test_engine_claims_the_device_while_it_works() -> None:
    calls: list[str] = []

    class RecordingPriority:
        def announce(self, working: bool) -> None:
            calls.append("work" if working else "rest")

        def wait(self) -> None:
            calls.append("wait")

    bench = Bench(VirtualBackend(), device_priority=RecordingPriority())
    bench.run(make_job("a", steps=3))
    assert calls[0] == "work"
    assert calls[-1] == "rest"
    assert calls.count("wait") == len(bench.backend.batches("step")) == 3


def test_calls_and_steps_are_counted() -> None:
    backend = VirtualBackend(finish_seconds=0.5)
    bench = Bench(backend)
    bench.run(*(make_job(name, steps=8) for name in ("a", "b", "c")))
    counted, batches = bench.engine.counts, backend.batches("step")
    assert counted["steps"] == len(batches)
    assert counted["members"] == sum(map(len, batches)) == 3 * 8
    assert counted["steps_s"] == pytest.approx(sum(backend.step_seconds(None, len(batch)) for batch in batches))
    assert counted["finish_s"] == pytest.approx(3 * 0.5)
    assert counted["batch:1"] == sum(len(batch) == 1 for batch in batches)
    assert counted["step_ms:sum"] == pytest.approx(1000 * counted["steps_s"])
    assert counted["prompts_hits"] == len(backend.batches("encode"))
    assert bench.engine.setup == backend.setup


def test_jobs_share_the_device_time() -> None:
    bench = Bench(VirtualBackend(finish_seconds=0.5))
    bench.run(make_job("a", steps=2), make_job("b", steps=8), make_job("c", steps=8))
    took = {}
    for name in ("a", "b", "c"):
        last = bench.listeners[name].events[-1]
        assert isinstance(last, Done)
        took[name] = last.device_s
    counted = bench.engine.counts
    assert sum(took.values()) == pytest.approx(counted["encode_s"] + counted["steps_s"] + counted["finish_s"])
    assert 0.5 < took["a"] < min(took["b"], took["c"])
