from __future__ import annotations

import dataclasses
import time
from contextlib import AbstractContextManager
from typing import Any

import pytest
from support.jobs import make_job

from deployments.engine.requests import Reached, RequestHandle
from deployments.replica import write_spans
from deployments.telemetry.tracing import Attributes, Kind, Span

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Recorded:
    """A tracer that keeps what it is told."""

    def __init__(self) -> None:
        self.spans: dict[str, tuple[float, float]] = {}
        self.attributes: list[Any] = []

    def span(
        self, name: str, parent: str, attributes: Attributes | None = None, kind: Kind = "internal"
    ) -> AbstractContextManager[Span]:
        raise AssertionError("the work is over")

    def record(self, name: str, parent: str, began: float, ended: float, attributes: Attributes | None = None) -> None:
        assert parent == PARENT
        self.spans[name] = (began, ended)
        self.attributes.append(attributes)

    def close(self) -> None:
        pass


def written(parent: str = PARENT, **reached: float) -> tuple[dict[str, float], Recorded]:
    """How long each stage took, of a job that came 20 s ago and reached what when, in seconds from then."""
    now = time.monotonic()
    handle = RequestHandle(dataclasses.replace(make_job("a"), traceparent=parent), lambda event: None, now - 20)
    handle.reached = {Reached[name.upper()]: now - 20 + at for name, at in reached.items()}
    recorded = Recorded()
    write_spans(recorded, handle, "done")
    return {name: round(ended - began, 1) for name, (began, ended) in recorded.spans.items()}, recorded


def test_the_stages_follow_from_what_was_reached_when() -> None:
    took, recorded = written(admitted=2, encoded=3, last_step=10, finishing=12, finished=15)
    assert took == {"wait": 2, "encode": 1, "steps": 7, "finish": 3, "store": 5}
    assert recorded.spans["wait"][0] == pytest.approx(time.time() - 20, abs=5)
    assert recorded.attributes[0] == {"gen.task": "a", "gen.attempt": 1, "gen.steps": 4, "gen.outcome": "done"}


def test_a_job_that_ends_early_has_the_stages_that_it_came_to() -> None:
    assert written()[0] == {"wait": 20}
    assert written(admitted=2)[0] == {"wait": 2, "encode": 18}
    assert written(admitted=2, encoded=3)[0] == {"wait": 2, "encode": 1, "steps": 17}
    assert written(admitted=2, encoded=3, last_step=10)[0] == {"wait": 2, "encode": 1, "steps": 7}


def test_steps_that_an_earlier_attempt_took_are_not_this_ones() -> None:
    took, _ = written(admitted=2, encoded=3, finishing=4, finished=5)
    assert took == {"wait": 2, "encode": 1, "finish": 1, "store": 15}


def test_a_job_that_nobody_traces_has_none() -> None:
    assert written(parent="", admitted=2)[0] == {}
