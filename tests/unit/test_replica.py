from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest
from support.jobs import make_job
from support.replicas import ProcessEnded, deploy_replica, in_this_process
from support.virtual_backend import VirtualBackend, VirtualClock

from deployments import replica
from deployments.backend import DeviceBroken, NotFinite
from deployments.contract.counts import BUSY_S, LOAD_S, LOADS, STEPS
from deployments.contract.events import Alive, Done, Event, Interrupted
from deployments.contract.job import GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.engine.cost_model import StepCost
from deployments.engine.requests import Milestone, RequestHandle
from deployments.replica import MediaModel
from deployments.replica_metrics import REPORT_INTERVAL_S, ReplicaReporter, write_spans
from deployments.step_cost_store import FOLDER, WRITE_INTERVAL_S, StepCostStore
from deployments.telemetry.tracing import Attributes, Span, SpanType


@pytest.fixture
def backend() -> VirtualBackend:
    return VirtualBackend()


@pytest.fixture
async def media(backend: VirtualBackend, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MediaModel]:
    in_this_process(monkeypatch)
    replica = await deploy_replica(backend, monkeypatch)
    yield replica
    replica._engine.stop()


async def collect_events(media: MediaModel, name: str) -> list[Event]:
    return [event async for event in media.generate(make_job(name))]


async def test_job_of_another_release_goes_back_without_blame(media: MediaModel) -> None:
    job = object.__new__(GenerationJob)
    job.__setstate__(["one", 1, "a red circle", 64, 64, 4, 7, "png", "results/one/1", ("inputs/t/0.png",)])
    [event] = [event async for event in media.generate(job)]
    assert isinstance(event, Interrupted)
    assert not event.blame
    assert not event.counts


async def test_broken_device_ends_the_process_at_the_health_check(media: MediaModel, backend: VirtualBackend) -> None:
    await media.check_health()
    backend.errors["step", "a"] = DeviceBroken("CUDA error: an illegal memory access was encountered")
    *_, last = await collect_events(media, "a")
    assert isinstance(last, Interrupted)
    assert not last.blame
    with pytest.raises(ProcessEnded):
        await media.check_health()


async def test_nan_results_in_a_row_are_unhealthy(media: MediaModel, backend: VirtualBackend) -> None:
    names = [str(n) for n in range(replica._MAX_FAULTS)]
    backend.errors = {("finish", name): NotFinite() for name in names}
    for name in names[:-1]:
        await collect_events(media, name)
        await media.check_health()
    await collect_events(media, names[-1])
    with pytest.raises(RuntimeError, match=f"{replica._MAX_FAULTS} jobs in a row"):
        await media.check_health()
    await collect_events(media, "good")
    await media.check_health()


async def test_end_of_a_job_reports_the_counters(media: MediaModel, backend: VirtualBackend) -> None:
    *_, progress_event, last = await collect_events(media, "a")
    assert isinstance(last, Done)
    assert isinstance(progress_event, Alive)
    assert progress_event.report is not None
    counts, setup = progress_event.report
    assert counts["steps"] == counts["members"] == len(backend.batches("step"))
    assert counts["busy_s"] > 0
    assert setup == backend.setup


@dataclass
class FakeCounters:
    counts: Mapping[str, float] = field(default_factory=lambda: {STEPS: 7.0})
    setup: Mapping[str, str] = field(default_factory=lambda: {"device": "cpu"})


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def engine() -> FakeCounters:
    return FakeCounters()


@pytest.fixture
def reporter(engine: FakeCounters, clock: VirtualClock) -> ReplicaReporter:
    return ReplicaReporter(engine, 3.5, clock)


def test_report_counts_what_changed_since_the_last(
    reporter: ReplicaReporter, engine: FakeCounters, clock: VirtualClock
) -> None:
    loaded = {LOADS: 1, LOAD_S: 3.5}
    for steps, seconds in ((4, 2.0), (4, 0.5), (9, 3.0)):
        engine.counts = {STEPS: engine.counts[STEPS] + steps}
        reporter.job_started()
        clock.now += seconds
        report = reporter.report()
        reporter.job_finished()
        clock.now += 100.0
        assert report is not None
        assert report.counts == {STEPS: steps, BUSY_S: pytest.approx(seconds), **loaded}
        loaded = {}  # only in the first report
        assert report.setup == {"device": "cpu"}


def test_seconds_with_several_jobs_count_once(reporter: ReplicaReporter, clock: VirtualClock) -> None:
    for _ in range(3):
        reporter.job_started()
        clock.now += 1.0
    for _ in range(2):
        reporter.job_finished()
        clock.now += 1.0
    report = reporter.report()
    assert report is not None
    assert report.counts == {BUSY_S: 5.0, LOADS: 1, LOAD_S: 3.5}, "counters before the first job do not start the clock"


def test_reports_are_throttled_while_other_jobs_run(reporter: ReplicaReporter, clock: VirtualClock) -> None:
    for _ in range(2):
        reporter.job_started()
    assert reporter.report() is not None
    clock.now += REPORT_INTERVAL_S / 2
    assert reporter.report() is None
    clock.now += REPORT_INTERVAL_S / 2
    assert reporter.report() is not None
    reporter.job_finished()
    assert reporter.report() is not None, "the last job's report is never throttled"


COST = StepCost(fixed=0.002, per_token=1e-5, per_square=0.0)
SETUP = {"device": "a GPU", "dtype": "bfloat16"}


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore("memory:///")


def test_step_costs_are_shared_by_model_and_setup(store: ObjectStore) -> None:
    first, second = {"None": COST}, {"other": COST.times(2)}
    for costs in (first, second):
        StepCostStore(store, "a/model", SETUP).write(costs)
    assert StepCostStore(store, "a/model", dict(reversed(SETUP.items()))).read() == first | second
    assert StepCostStore(store, "another/model", SETUP).read() == {}
    assert StepCostStore(store, "a/model", {**SETUP, "dtype": "float32"}).read() == {}


@pytest.mark.parametrize(
    "data",
    [
        b"no json",
        b'{"None": 3}',
        b'{"None": {"fixed": -1, "per_token": 1, "per_square": 1}}',
        b'{"None": {"fixed": NaN, "per_token": 1, "per_square": 1}}',
        b'{"None": {"fixed": 0, "per_token": 0, "per_square": 0}}',
        b'{"None": {"fixed": 1, "per_token": 1, "per_square": 1, "more": 1}}',
    ],
)
async def test_invalid_step_costs_are_replaced(store: ObjectStore, data: bytes) -> None:
    costs = StepCostStore(store, "a/model", SETUP)
    costs.write({"None": COST})
    [key] = await store.keys(FOLDER)
    store.put_blocking(key, data, "application/json")
    assert costs.read() == {}
    costs.write({"None": COST})
    assert costs.read() == {"None": COST}


def test_unreachable_store_only_loses_step_costs(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> NoReturn:
        raise OSError("no route to host")

    for call in ("get_blocking", "put_blocking"):
        monkeypatch.setattr(ObjectStore, call, unreachable)
    costs = StepCostStore(store, "a/model", SETUP)
    assert costs.read() == {}
    costs.write({"None": COST})


def test_step_costs_are_written_once_a_minute(store: ObjectStore) -> None:
    clock, learned = VirtualClock(), dict[str, StepCost]()
    costs = StepCostStore(store, "a/model", SETUP, clock)
    clock.now += WRITE_INTERVAL_S
    assert costs.write_in_background(lambda: learned) is None, "nothing was learned"
    learned["None"] = COST
    writing = costs.write_in_background(lambda: learned)
    assert writing is not None
    writing.join(10)
    assert costs.read() == learned
    assert costs.write_in_background(lambda: learned) is None
    clock.now += WRITE_INTERVAL_S
    assert costs.write_in_background(lambda: learned) is not None


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class RecordingTracer:
    """A fake tracer that keeps recorded spans."""

    def __init__(self) -> None:
        self.spans: dict[str, tuple[float, float]] = {}
        self.attributes: list[Any] = []

    def span(
        self, name: str, parent: str, attributes: Attributes | None = None, span_type: SpanType = "internal"
    ) -> AbstractContextManager[Span]:
        raise AssertionError("spans of ended jobs are recorded")

    def record(
        self, name: str, parent: str, started_at: float, finished_at: float, attributes: Attributes | None = None
    ) -> None:
        assert parent == PARENT
        self.spans[name] = (started_at, finished_at)
        self.attributes.append(attributes)

    def close(self) -> None:
        pass


def record_spans(parent: str = PARENT, **reached: float) -> tuple[dict[str, float], RecordingTracer]:
    """Returns the seconds of each span of a job that was submitted 20 s ago; `reached` are seconds from then."""
    now = time.monotonic()
    handle = RequestHandle(make_job("a", traceparent=parent), lambda event: None, now - 20)
    handle.reached = {Milestone[name.upper()]: now - 20 + at for name, at in reached.items()}
    recorded = RecordingTracer()
    write_spans(recorded, handle, "done")
    return {name: round(end - start, 1) for name, (start, end) in recorded.spans.items()}, recorded


def test_milestones_of_a_job_become_spans() -> None:
    seconds, recorded = record_spans(admitted=2, encoded=3, last_step=10, finishing=12, finished=15)
    assert seconds == {"wait": 2, "encode": 1, "steps": 7, "finish": 3, "store": 5}
    assert recorded.spans["wait"][0] == pytest.approx(time.time() - 20, abs=5)
    assert recorded.attributes[0] == {"gen.task": "a", "gen.attempt": 1, "gen.steps": 4, "gen.outcome": "done"}


def test_job_that_ends_early_has_only_its_spans() -> None:
    assert record_spans()[0] == {"wait": 20}
    assert record_spans(admitted=2)[0] == {"wait": 2, "encode": 18}
    assert record_spans(admitted=2, encoded=3)[0] == {"wait": 2, "encode": 1, "steps": 17}
    assert record_spans(admitted=2, encoded=3, last_step=10)[0] == {"wait": 2, "encode": 1, "steps": 7}
    resumed = {"wait": 2, "encode": 1, "finish": 1, "store": 15}
    assert record_spans(admitted=2, encoded=3, finishing=4, finished=5)[0] == resumed, "steps of an earlier attempt"
    assert record_spans(parent="", admitted=2)[0] == {}, "without a parent there is no trace"
