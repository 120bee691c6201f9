"""Goals of a run: an objective for each result, and thresholds for the whole run."""

from __future__ import annotations

import operator
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from gen_serve_bench.outcomes import Outcome
from gen_serve_bench.workload import LoadRequest

PERCENTILES: Final = ("p50", "p90", "p95", "p99", "p999", "max")
METRICS: Final = (
    *("requests", "served", "refused", "failed", "lost", "errors", "attainment", "goodput", "throughput", "jain"),
    *PERCENTILES,
    *(f"queue_{name}" for name in PERCENTILES),
)
"""Metrics that --fail-if can name; docs/benchmarks.md describes them."""
_OBJECTIVE: Final = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<times>x?)")
_THRESHOLD: Final = re.compile(r"\s*(?P<metric>\w+)\s*(?P<sign>[<>]=?)\s*(?P<limit>\d+(\.\d+)?)\s*")
_SIGNS: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_SOLO_REQUESTS: Final = 3
"""Requests of each kind to measure alone, after one that wakes the server."""
_MAX_SOLO_KINDS: Final = 50


class NoSolo(Exception):
    """The latency of a request alone could not be measured."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Latency objective: seconds, or a multiple of the solo latency of the same kind of request."""

    seconds: float | None = None
    times_solo: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses `5` or `3x`. Raises ValueError."""
        match = _OBJECTIVE.fullmatch(text.strip().lower())
        if not match or float(match["number"]) <= 0:
            raise ValueError(f"--slo should be seconds, like 5, or a multiple of solo latency, like 3x, not {text!r}")
        number = float(match["number"])
        return cls(times_solo=number) if match["times"] else cls(seconds=number)

    def __str__(self) -> str:
        return f"{self.seconds:g} s" if self.seconds is not None else f"{self.times_solo:g}x solo latency"

    def seconds_by_kind(self, kinds: Iterable[str], solo: Mapping[str, float]) -> dict[str, float]:
        return {kind: self.seconds or (self.times_solo or 0.0) * solo[kind] for kind in kinds}


def solo_requests(requests: Sequence[LoadRequest]) -> list[LoadRequest]:
    """Returns requests of each kind to measure alone. Raises ValueError for too many kinds."""
    firsts: dict[str, LoadRequest] = {}
    for request in requests:
        firsts.setdefault(request.kind, request)
    if len(firsts) > _MAX_SOLO_KINDS:
        raise ValueError(f"--slo in seconds is needed: {len(firsts)} kinds of requests are too many to measure alone")
    return [
        replace(first, number=number, moment=0.0, seed=first.seed + number)
        for first in firsts.values()
        for number in range(_SOLO_REQUESTS + 1)
    ]


def solo_latencies(requests: Sequence[LoadRequest], send: Callable[[LoadRequest], Outcome]) -> dict[str, float]:
    """Sends the requests one after the other. Returns the median seconds by kind. Raises NoSolo."""
    latencies: dict[str, list[float]] = {}
    for request in requests:
        outcome = send(request)
        if outcome.time_to_result is None or outcome.final is None or outcome.sent is None:
            raise NoSolo(f"{request.kind}: a request alone was {outcome.end} ({outcome.reason})")
        if request.number:
            # Counted from `sent`, since `intended` includes the start of its generator.
            latencies.setdefault(request.kind, []).append(outcome.final - outcome.sent)
    return {kind: statistics.median(seconds) for kind, seconds in latencies.items()}


@dataclass(frozen=True, slots=True)
class Threshold:
    """Condition of `--fail-if` that fails a run: `p95>10`, `attainment<0.99`."""

    metric: str
    sign: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses a condition. Raises ValueError, which lists the known metrics."""
        match = _THRESHOLD.fullmatch(text)
        if not match or match["metric"] not in METRICS:
            raise ValueError(f"--fail-if should be like 'p95>10', of {', '.join(METRICS)}; not {text!r}")
        return cls(match["metric"], match["sign"], float(match["limit"]))

    def __str__(self) -> str:
        return f"{self.metric}{self.sign}{self.limit:g}"

    def violation(self, metrics: Mapping[str, float | None]) -> str | None:
        """Describes a violation in a line; None without one. A metric without a value counts as one, to be safe."""
        value = metrics[self.metric]
        if value is None:
            return f"{self.metric} could not be measured (--fail-if '{self}')"
        if _SIGNS[self.sign](value, self.limit):
            return f"{self.metric} is {value:.4g} (--fail-if '{self}')"
        return None
