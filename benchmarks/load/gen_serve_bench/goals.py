"""What a run is held against: an objective for each result, and thresholds for the run as a whole."""

from __future__ import annotations

import operator
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from gen_serve_bench.results import METRICS, Outcome, RunResult
from gen_serve_bench.workload import Request

_OBJECTIVE: Final = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<times>x?)")
_THRESHOLD: Final = re.compile(r"\s*(?P<metric>\w+)\s*(?P<sign>[<>]=?)\s*(?P<limit>\d+(\.\d+)?)\s*")
_SIGNS: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_SOLO: Final = 3
"""Requests of each kind that are sent one after the other, after a first that may have to wake the server."""
_MOST_KINDS: Final = 50


class NoSolo(Exception):
    """The latency of a request that is alone could not be measured."""


@dataclass(frozen=True, slots=True)
class Objective:
    """How soon a result is to come: seconds, or a multiple of what a request of the same kind takes alone."""

    seconds: float | None = None
    times_solo: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of `5` or `3x`. Raises ValueError."""
        match = _OBJECTIVE.fullmatch(text.strip().lower())
        if not match or float(match["number"]) <= 0:
            raise ValueError(f"--slo should be seconds, like 5, or a multiple of solo latency, like 3x, not {text!r}")
        number = float(match["number"])
        return cls(times_solo=number) if match["times"] else cls(seconds=number)

    def __str__(self) -> str:
        return f"{self.seconds:g} s" if self.seconds is not None else f"{self.times_solo:g}x solo latency"

    def seconds_by_kind(self, kinds: Iterable[str], solo: Mapping[str, float]) -> dict[str, float]:
        """Seconds, by kind of request."""
        return {kind: self.seconds or (self.times_solo or 0.0) * solo[kind] for kind in kinds}


def solo_requests(requests: Sequence[Request]) -> list[Request]:
    """Some of each kind. Raises ValueError where there are too many kinds to measure each."""
    firsts: dict[str, Request] = {}
    for request in requests:
        firsts.setdefault(request.kind, request)
    if len(firsts) > _MOST_KINDS:
        raise ValueError(f"--slo in seconds is needed: {len(firsts)} kinds of requests are too many to measure alone")
    return [
        replace(first, number=number, moment=0.0, seed=first.seed + number)
        for first in firsts.values()
        for number in range(_SOLO + 1)
    ]


def solo_latencies(requests: Sequence[Request], send: Callable[[Request], Outcome]) -> dict[str, float]:
    """Seconds by kind: the median of requests that were sent when the one before had ended. Raises NoSolo."""
    took: dict[str, list[float]] = {}
    for request in requests:
        outcome = send(request)
        if outcome.time_to_result is None or outcome.final is None or outcome.sent is None:
            raise NoSolo(f"{request.kind}: a request alone was {outcome.end} ({outcome.reason})")
        if request.number:
            # From when it was sent: before, its generator had yet to begin.
            took.setdefault(request.kind, []).append(outcome.final - outcome.sent)
    return {kind: statistics.median(seconds) for kind, seconds in took.items()}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A bound that a run must not cross, as `--fail-if` says it: `p95>10`, `attainment<0.99`."""

    metric: str
    sign: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError, which names the metrics that are known."""
        match = _THRESHOLD.fullmatch(text)
        if not match or match["metric"] not in METRICS:
            raise ValueError(f"--fail-if should be like 'p95>10', of {', '.join(METRICS)}; not {text!r}")
        return cls(match["metric"], match["sign"], float(match["limit"]))

    def __str__(self) -> str:
        return f"{self.metric}{self.sign}{self.limit:g}"

    def violation(self, run: RunResult) -> str | None:
        """How, in a line. What could not be measured has crossed it: nobody knows that all was well."""
        value = run.metrics[self.metric]
        if value is None:
            return f"{run.title}: {self.metric} could not be measured (--fail-if '{self}')"
        if _SIGNS[self.sign](value, self.limit):
            return f"{run.title}: {self.metric} is {value:.4g} (--fail-if '{self}')"
        return None
