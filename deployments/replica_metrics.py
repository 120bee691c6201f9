"""Metrics and traces of a replica, both reported when a job ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from deployments.contract.counts import ATTENTION_FALLBACKS, BUSY_S, COMPILE_FALLBACKS, LOAD_S, LOADS
from deployments.contract.events import Alive
from deployments.engine.requests import Milestone, RequestHandle
from deployments.telemetry.tracing import Attributes, Tracer

REPORT_INTERVAL_S: Final = 1.0

_STAGES: Final = (
    ("encode", Milestone.ADMITTED, Milestone.ENCODED),
    ("steps", Milestone.ENCODED, Milestone.LAST_STEP),
    ("finish", Milestone.FINISHING, Milestone.FINISHED),
)
"""Spans of a job. Between them it waits for its inputs, the batch and the finishing thread."""


class Counters(Protocol):
    @property
    def setup(self) -> Mapping[str, str]: ...
    @property
    def counts(self) -> Mapping[str, float]: ...


class ReplicaReporter:
    """Reports the counters of a replica. Not thread-safe. A report that gets lost is not sent again."""

    def __init__(self, engine: Counters, load_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`load_s`: seconds that the model took to load."""
        self._engine = engine
        self._clock = clock
        self._jobs = 0
        self._busy_since = 0.0
        self._busy_s = 0.0
        setup = engine.setup
        self._load_counts = {
            LOADS: 1.0,
            LOAD_S: load_s,
            COMPILE_FALLBACKS: float(setup.get("compiled") == "failed"),
            ATTENTION_FALLBACKS: float(len(setup.get("attention_unusable", "").split())),
        }
        self._last_counts: Mapping[str, float] = engine.counts  # probes at load are no jobs
        self._last_report_at = -REPORT_INTERVAL_S

    def job_started(self) -> None:
        if not self._jobs:
            self._busy_since = self._clock()
        self._jobs += 1

    def job_finished(self) -> None:
        self._jobs -= 1
        if not self._jobs:
            self._busy_s += self._clock() - self._busy_since

    def report(self) -> Alive | None:
        """Returns the counters changed since the last report, at most once a second; always when the last job ends."""
        now = self._clock()
        if self._jobs > 1 and now - self._last_report_at < REPORT_INTERVAL_S:
            return None
        busy_s = self._busy_s + (now - self._busy_since if self._jobs else 0.0)
        counts = {**self._engine.counts, **self._load_counts, BUSY_S: busy_s}
        deltas = {name: count - self._last_counts.get(name, 0) for name, count in counts.items()}
        self._last_counts, self._last_report_at = counts, now
        return Alive({name: count for name, count in deltas.items() if count}, self._engine.setup)


def write_spans(tracer: Tracer, handle: RequestHandle, outcome: str) -> None:
    """Records the spans of a job that ends now, if it is traced. `outcome` is the name of the last event."""
    job = handle.job
    if not job.traceparent:
        return
    milestones, now = handle.reached, time.monotonic()
    epoch = time.time() - now
    attributes: Attributes = {
        "gen.task": job.id,
        "gen.attempt": job.attempt,
        "gen.steps": job.request.steps,
        "gen.outcome": outcome,
    }
    spans = [("wait", handle.submitted_at, milestones.get(Milestone.ADMITTED, now))]
    latest = max(milestones.values(), default=now)
    for name, start, end in _STAGES:
        # A video that resumes after its last step skips a stage, which then has a start and no end.
        if start in milestones and (end in milestones or milestones[start] == latest):
            spans.append((name, milestones[start], milestones.get(end, now)))
    if Milestone.FINISHED in milestones:
        spans.append(("store", milestones[Milestone.FINISHED], now))
    for name, started_at, finished_at in spans:
        tracer.record(name, job.traceparent, epoch + started_at, epoch + finished_at, attributes)
