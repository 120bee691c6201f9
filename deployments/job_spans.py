"""The spans of a job, written when it has left: the engine only notes when it reached what."""

from __future__ import annotations

import time
from typing import Final

from deployments.contract.job import GenerationJob
from deployments.engine.request_handle import Reached, RequestHandle
from deployments.telemetry.tracing import Attributes, Tracer

_STAGES: Final = (
    ("encode", Reached.ADMITTED, Reached.ENCODED),
    ("steps", Reached.ENCODED, Reached.LAST_STEP),
    ("finish", Reached.FINISHING, Reached.FINISHED),
)
"""Between two of them a job waits: for its inputs and a place in the batch, for the thread that finishes."""


def write_spans(tracer: Tracer, handle: RequestHandle, outcome: str) -> None:
    """Of a job that ends now, by the engine's clock, which is `time.monotonic`. `outcome` is the last event's name."""
    job = handle.job
    if not job.traceparent:
        return
    reached, now = handle.reached, time.monotonic()
    epoch, attributes = time.time() - now, _attributes(job, outcome)
    tracer.record(
        "wait", job.traceparent, epoch + handle.submitted, epoch + reached.get(Reached.ADMITTED, now), attributes
    )
    latest = max(reached.values(), default=now)
    for name, began, ended in _STAGES:
        # One that was passed over has a beginning and no end: a video that goes on where its steps were done.
        if began in reached and (ended in reached or reached[began] == latest):
            tracer.record(name, job.traceparent, epoch + reached[began], epoch + reached.get(ended, now), attributes)
    if Reached.FINISHED in reached:
        tracer.record("store", job.traceparent, epoch + reached[Reached.FINISHED], epoch + now, attributes)


def _attributes(job: GenerationJob, outcome: str) -> Attributes:
    return {"gen.task": job.id, "gen.attempt": job.attempt, "gen.steps": job.steps, "gen.outcome": outcome}
