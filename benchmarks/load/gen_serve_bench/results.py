"""Results of runs and sweeps: the figures that summarize the outcomes of requests."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from gen_serve_bench.goals import METRICS, PERCENTILES, Objective
from gen_serve_bench.outcomes import GeneratorRun, Outcome, WorkerStats
from gen_serve_bench.workload import Plan

TIMES: Final = {
    "acknowledgement": "until accepted",
    "queue_wait": "in the queue",
    "service_time": "at work",
    "time_to_end": "until the end",
    "time_to_result": "until the result",
}
_MAX_LATENESS_S: Final = 0.05
_MAX_CPU: Final = 0.9
_CLOCK_SKEW_S: Final = -0.05
"""Median queue wait below which the clocks of client and server must differ."""


def quantile(values: Sequence[float], q: float) -> float:
    """Returns the quantile `q`, interpolated between neighbours. Raises ValueError without values."""
    if not values:
        raise ValueError("no values")
    ascending = sorted(values)
    index = q * (len(ascending) - 1)
    below = int(index)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * (index - below)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles in the unit of the values. A p99 of fewer than 100 values is little more than their maximum."""

    n: int
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float

    @classmethod
    def from_values(cls, values: Sequence[float]) -> Self | None:
        """Returns None without values."""
        if not values:
            return None
        ordered = sorted(values)
        return cls(len(values), *(quantile(ordered, q) for q in (0.5, 0.9, 0.95, 0.99, 0.999, 1.0)))

    def as_json(self) -> dict[str, float]:
        return {name: round(value, 4) for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Window:
    """Part of a run that counts, in seconds after its start."""

    begin: float
    end: float

    def contains(self, moment: float | None) -> bool:
        return moment is not None and self.begin <= moment < self.end

    def per_s(self, amount: float) -> float | None:
        return round(amount / (self.end - self.begin), 4) if self.end > self.begin else None


def summarize(outcomes: Sequence[Outcome], window: Window, weights: Mapping[str, float]) -> dict[str, Any]:
    """Summarizes the requests scheduled in the window: counts, and times in seconds. `weights` are by tenant.

    - `goodput_per_s`: results within the objective per second of arrivals
    - `attainment`: their share of all requests, including refused, failed and lost ones
    - `throughput_per_s`, `megapixel_steps_per_s`: results that arrived in the window, whenever they were scheduled; the
      latter is None if a request leaves size or steps to the server
    - `queue_wait`: compares two clocks, so that between machines it is off by their difference
    """
    counted = [one for one in outcomes if not one.warm_up]
    completed = [one for one in counted if one.end != "interrupted"]
    results = [one for one in outcomes if one.served and window.contains(one.final)]
    works = [one.shape.work for one in results]
    accepted = [one for one in counted if one.acknowledged is not None]
    kinds = [kind for kind, _ in Counter(one.kind for one in completed).most_common()]
    return {
        "requests": len(counted),
        "seconds": round(window.end - window.begin, 3),
        "ends": dict(Counter(one.end for one in counted)),
        "refusals": dict(Counter(one.reason for one in counted if one.end == "refused").most_common()),
        "failures": dict(Counter(one.reason for one in counted if one.end == "failed").most_common()),
        "lost": sum(one.end == "lost" for one in outcomes),
        "goodput_per_s": window.per_s(sum(one.good for one in completed)),
        "attainment": _attainment(completed),
        "throughput_per_s": window.per_s(len(results)),
        "megapixel_steps_per_s": None if None in works else window.per_s(sum(work or 0.0 for work in works)),
        "polls_per_task": round(sum(one.polls for one in accepted) / len(accepted), 2) if accepted else None,
        "poll_errors": sum(one.poll_errors for one in counted),
        **{name: _percentiles(values) for name, values in times(counted).items()},
        "kinds": {kind: _kind_summary([one for one in completed if one.kind == kind]) for kind in kinds},
        "fairness": fairness(completed, weights),
    }


def times(outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    """Returns the seconds of the requests that got so far, by the names in TIMES.

    `time_to_result` is as the client saw it, `time_to_end` by the server's clock: polling adds to the former only.
    """
    served = [one for one in outcomes if one.served]
    pairs = {
        "acknowledgement": [(one.intended, one.acknowledged) for one in outcomes],
        "queue_wait": [(one.acknowledged, one.started) for one in served],
        "service_time": [(one.started, one.ended) for one in served],
        "time_to_end": [(one.intended, one.ended) for one in served],
        "time_to_result": [(one.intended, one.final) for one in served],
    }
    return {
        name: [to - since for since, to in moments if since is not None and to is not None]
        for name, moments in pairs.items()
    }


def jain(amounts: Sequence[float]) -> float | None:
    """Returns Jain's index of fairness: 1 if all are equal, 1/n if one of n has everything, None if all are zero."""
    squares = sum(amount * amount for amount in amounts)
    return sum(amounts) ** 2 / (len(amounts) * squares) if squares else None


def fairness(outcomes: Sequence[Outcome], weights: Mapping[str, float]) -> dict[str, Any]:
    """Returns requests, results and waits by tenant, and Jain's index of the served amount per weight.

    Amounts are megapixel-steps if all requests set size and steps, else results. The index means something if all
    tenants requested more than they got: one that requested little and got it lowers the index, too.
    """
    by_work = all(one.shape.work is not None for one in outcomes)
    tenants: dict[str, dict[str, Any]] = {}
    for name, weight in weights.items():
        own = [one for one in outcomes if one.tenant == name]
        waits = times(own)
        tenants[name] = {
            "weight": weight,
            "asked": len(own),
            "served": sum(one.served for one in own),
            "refused": sum(one.end == "refused" for one in own),
            "amount": round(sum((one.shape.work or 0.0) if by_work else 1.0 for one in own if one.served), 4),
            "time_to_result": _percentiles(waits["time_to_result"]),
            "queue_wait": _percentiles(waits["queue_wait"]),
        }
    index = jain([each["amount"] / each["weight"] for each in tenants.values()]) if len(tenants) > 1 else None
    counted_in = "megapixel-steps" if by_work else "results"
    return {"jain": None if index is None else round(index, 4), "counted_in": counted_in, "tenants": tenants}


def health(outcomes: Sequence[Outcome], workers: Sequence[WorkerStats]) -> dict[str, Any]:
    """Checks whether the generator was the bottleneck.

    Returns the lateness of requests and event loops in seconds, each process's share of a core, and in `limits` a
    sentence for each sign of a bottleneck; without any the figures are the server's.
    """
    late = Percentiles.from_values([max(0.0, one.sent - one.intended) for one in outcomes if one.sent is not None])
    lag = max((quantile(stats.loop_lag, 0.99) for stats in workers if stats.loop_lag), default=None)
    limits: list[str] = []
    if late and late.p99 > _MAX_LATENESS_S:
        limits.append(f"1 of 100 requests was sent {late.p99:.3f} s late or later (limit {_MAX_LATENESS_S:g} s)")
    if busy := [stats.cpu for stats in workers if stats.cpu > _MAX_CPU]:
        limits.append(f"{len(busy)} of {len(workers)} generator processes used {max(busy):.0%} of a core")
    if lag is not None and lag > _MAX_LATENESS_S:
        limits.append(f"1 of 100 event loop wake-ups was {lag:.3f} s late or later (limit {_MAX_LATENESS_S:g} s)")
    return {
        "lateness": late and late.as_json(),
        "cpu": [round(stats.cpu, 3) for stats in workers],
        "loop_lag_p99": None if lag is None else round(lag, 4),
        "limits": limits,
    }


def _attainment(outcomes: Sequence[Outcome]) -> float | None:
    return round(sum(one.good for one in outcomes) / len(outcomes), 4) if outcomes else None


def _kind_summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "requests": len(outcomes),
        "served": sum(one.served for one in outcomes),
        "objective_s": outcomes[0].objective,
        "attainment": _attainment(outcomes),
        "time_to_result": _percentiles(times(outcomes)["time_to_result"]),
    }


def _percentiles(values: Sequence[float]) -> dict[str, float] | None:
    percentiles = Percentiles.from_values(values)
    return percentiles and percentiles.as_json()


@dataclass(frozen=True, slots=True)
class RunResult:
    """Outcomes of a run with their figures."""

    title: str
    settings: Mapping[str, Any]
    figures: Mapping[str, Any]
    generator: Mapping[str, Any]
    objective: str | None
    solo: Mapping[str, float]
    """Solo latencies in seconds by kind of request, if the objective is a multiple of them."""
    started: float
    """Epoch seconds."""
    interrupted: float | None
    notes: tuple[str, ...] = ()
    """Caveats about the figures."""
    outcomes: list[Outcome] = field(default_factory=list, repr=False)

    @classmethod
    def from_run(
        cls,
        plan: Plan,
        run: GeneratorRun,
        objective: Objective | None = None,
        solo: Mapping[str, float] | None = None,
        notes: tuple[str, ...] = (),
    ) -> Self:
        """Summarizes a run, and sets `objective` and `warm_up` of its outcomes."""
        kinds = {outcome.kind for outcome in run.outcomes}
        seconds = objective.seconds_by_kind(kinds, solo or {}) if objective else {}
        for outcome in run.outcomes:
            outcome.objective = seconds.get(outcome.kind)
            outcome.warm_up = outcome.intended < plan.warm_up
        if plan.duration is None:
            end = max((outcome.final or 0.0 for outcome in run.outcomes), default=0.0) + 1e-6
        else:
            end = plan.warm_up + plan.duration
        if run.interrupted is not None:
            end = min(end, run.interrupted)
        metrics = summarize(run.outcomes, Window(plan.warm_up, max(plan.warm_up, end)), plan.weights)
        return cls(
            title=plan.title,
            settings=plan.settings,
            figures=metrics,
            generator=health(run.outcomes, run.worker_stats),
            objective=str(objective) if objective else None,
            solo={kind: round(value, 4) for kind, value in (solo or {}).items()},
            started=run.started,
            interrupted=None if run.interrupted is None else round(run.interrupted, 3),
            notes=(*notes, *_notes(metrics, run)),
            outcomes=run.outcomes,
        )

    @property
    def metrics(self) -> dict[str, float | None]:
        """Figures by the names in METRICS."""
        values, ends = self.figures, self.figures["ends"]
        completed = values["requests"] - ends.get("interrupted", 0)
        latency, queue_wait = values["time_to_result"] or {}, values["queue_wait"] or {}
        counts = (values["requests"], *(ends.get(end, 0) for end in ("served", "refused", "failed")), values["lost"])
        errors = 1 - ends.get("served", 0) / completed if completed else None
        rates = (
            errors,
            values["attainment"],
            values["goodput_per_s"],
            values["throughput_per_s"],
            values["fairness"]["jain"],
        )
        percentiles = (each.get(name) for each in (latency, queue_wait) for name in PERCENTILES)
        return dict(zip(METRICS, (*counts, *rates, *percentiles), strict=True))

    def as_json(self) -> dict[str, Any]:
        return {"kind": "run"} | {name: getattr(self, name) for name in self.__slots__ if name != "outcomes"}

    def write(self, folder: Path) -> None:
        """Writes the rows, as JSON and CSV, and the summary."""
        folder.mkdir(parents=True, exist_ok=True)
        rows = [outcome.as_row() for outcome in self.outcomes]
        (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        with (folder / "rows.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else [])
            writer.writeheader()
            writer.writerows(rows)
        write_summary(self.as_json(), folder)


def write_summary(summary: Mapping[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")


def _notes(metrics: Mapping[str, Any], run: GeneratorRun) -> list[str]:
    notes: list[str] = []
    if run.interrupted is not None:
        notes.append(f"interrupted after {run.interrupted:.1f} s; shares leave out the requests unfinished by then")
    if metrics["megapixel_steps_per_s"] is None:
        notes.append("no megapixel-steps: some requests leave their size or steps to the server")
    wait = metrics["queue_wait"]
    if wait and wait["p50"] < _CLOCK_SKEW_S:
        notes.append("the server's clock is behind this machine's: queue waits are wrong by the difference")
    return notes


@dataclass(slots=True)
class Sweep:
    """Runs at several rates."""

    runs: list[RunResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def rates(self) -> list[dict[str, Any]]:
        """Summaries of the runs by rising rate."""
        return [_rate_summary(run) for run in sorted(self.runs, key=lambda run: run.settings["rate"])]

    def as_json(self) -> dict[str, Any]:
        first = self.runs[0] if self.runs else None
        head = {"settings": first and first.settings, "objective": first and first.objective}
        return {"kind": "sweep", **head, "rates": self.rates(), "notes": self.notes}

    def write(self, folder: Path) -> None:
        """Writes the summary and a folder for each run."""
        for number, run in enumerate(self.runs, start=1):
            run.write(folder / f"{number:02}-{run.settings['rate']:.4g}-per-s")
        write_summary(self.as_json(), folder)


def _rate_summary(run: RunResult) -> dict[str, Any]:
    names = ("requests", "attainment", "goodput", "throughput", "p50", "p99", "refused", "failed", "lost")
    metrics = run.metrics
    values = {name: metrics[name] for name in names}
    return {"rate": run.settings["rate"], **values, "generator_was_limit": bool(run.generator["limits"])}
