"""What became of requests, and what a run comes to in figures."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

from gen_serve_bench.workload import Plan, Shape

if TYPE_CHECKING:
    from gen_serve_bench.generator import GeneratorRun
    from gen_serve_bench.goals import Objective

End: TypeAlias = Literal["served", "refused", "failed", "lost", "interrupted"]
"""`served`: a result that can be used. `refused`: the server said at once that it won't (4xx, 503). `failed`: anything
else that is no result. `lost`: accepted, and never seen to end. `interrupted`: the run ended before it did."""

TIMES: Final = {
    "acknowledgement": "until accepted",
    "queue_wait": "in the queue",
    "service_time": "at work",
    "time_to_end": "until the end",
    "time_to_result": "until the result",
}
_PERCENTILES: Final = ("p50", "p90", "p95", "p99", "p999", "max")
METRICS: Final = (
    *("requests", "served", "refused", "failed", "lost", "errors", "attainment", "goodput", "throughput", "jain"),
    *_PERCENTILES,
    *(f"queue_{name}" for name in _PERCENTILES),
)
"""What --fail-if can name: docs/benchmarks.md explains each."""
_LATE_S: Final = 0.05
_BUSY: Final = 0.9
_CLOCKS_S: Final = -0.05
"""A median wait below it is no wait, but two clocks that differ."""


@dataclass(slots=True)
class Outcome:
    """Of one request. Times are seconds after the start of the run; `started` and `ended` by the server's clock."""

    number: int
    endpoint: str
    shape: Shape
    tenant: str
    intended: float
    """When it was to be sent. All times to a result count from here, so a generator that falls behind hides nothing."""
    task_id: str | None = None
    sent: float | None = None
    acknowledged: float | None = None
    """When the server had said that it takes the task; None where it did not, or answers with the result alone."""
    started: float | None = None
    ended: float | None = None
    final: float | None = None
    """When the client first knew how it ended."""
    end: End = "interrupted"
    reason: str = ""
    """Why it was not served: `HTTP 429`, `ConnectError`, `Content Moderated`, `unusable answer: …`."""
    polls: int = 0
    poll_errors: int = 0
    objective: float | None = None
    """Seconds within which the result was to come."""
    warm_up: bool = False
    """Whether it is left out of the figures."""

    @property
    def served(self) -> bool:
        return self.end == "served"

    @property
    def time_to_result(self) -> float | None:
        """Of those that were served."""
        return self.final - self.intended if self.served and self.final is not None else None

    @property
    def good(self) -> bool:
        """Served within the objective; where there is none, served."""
        took = self.time_to_result
        return took is not None and (self.objective is None or took <= self.objective)

    @property
    def kind(self) -> str:
        return f"{self.endpoint}, {self.shape}"

    def as_row(self) -> dict[str, Any]:
        fields = asdict(self)
        shape = fields.pop("shape")
        fields |= shape | {"size": str(self.shape.size) if self.shape.size else None}
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in fields.items()}


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """What it took one process to send its share: until the last request, as waiting for the last results is idle."""

    cpu: float
    """Of one core, as a share of the time."""
    loop_lag: Sequence[float]
    """By how many seconds the event loop was late, one value for each look."""


def quantile(values: Sequence[float], q: float) -> float:
    """The value below which the share `q` lies, interpolated between neighbours. Raises ValueError without values."""
    if not values:
        raise ValueError("no values")
    ascending = sorted(values)
    place = q * (len(ascending) - 1)
    below = int(place)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * (place - below)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """In the unit of the values. A p99 of fewer than 100 values is little more than their maximum."""

    n: int
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float

    @classmethod
    def from_values(cls, values: Sequence[float]) -> Self | None:
        """None without values."""
        if not values:
            return None
        ordered = sorted(values)
        return cls(len(values), *(quantile(ordered, q) for q in (0.5, 0.9, 0.95, 0.99, 0.999, 1.0)))

    def as_json(self) -> dict[str, float]:
        return {name: round(value, 4) for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a run that counts, in seconds after its start."""

    begin: float
    end: float

    def holds(self, moment: float | None) -> bool:
        return moment is not None and self.begin <= moment < self.end

    def per_s(self, amount: float) -> float | None:
        return round(amount / (self.end - self.begin), 4) if self.end > self.begin else None


def summarize(outcomes: Sequence[Outcome], window: Window, weights: Mapping[str, float]) -> dict[str, Any]:
    """Counts, and times in seconds, of the requests that were to be sent in the window; `weights` by tenant.

    `goodput_per_s`: results that came within the objective, per second of arrivals. `attainment`: their share of all
    requests, refused, failed and lost ones included. `throughput_per_s` and `megapixel_steps_per_s`: what came in the
    window, whenever it was asked for; the latter None where a request leaves size or steps to the server. `queue_wait`
    compares two clocks; between machines it is off by their difference.
    """
    ours = [one for one in outcomes if not one.warm_up]
    completed = [one for one in ours if one.end != "interrupted"]
    came = [one for one in outcomes if one.served and window.holds(one.final)]
    works = [one.shape.work for one in came]
    accepted = [one for one in ours if one.acknowledged is not None]
    kinds = [kind for kind, _ in Counter(one.kind for one in completed).most_common()]
    return {
        "requests": len(ours),
        "seconds": round(window.end - window.begin, 3),
        "ends": dict(Counter(one.end for one in ours)),
        "refusals": dict(Counter(one.reason for one in ours if one.end == "refused").most_common()),
        "failures": dict(Counter(one.reason for one in ours if one.end == "failed").most_common()),
        "lost": sum(one.end == "lost" for one in outcomes),
        "goodput_per_s": window.per_s(sum(one.good for one in completed)),
        "attainment": _attainment(completed),
        "throughput_per_s": window.per_s(len(came)),
        "megapixel_steps_per_s": None if None in works else window.per_s(sum(work or 0.0 for work in works)),
        "polls_per_task": round(sum(one.polls for one in accepted) / len(accepted), 2) if accepted else None,
        "poll_errors": sum(one.poll_errors for one in ours),
        **{name: _percentiles(values) for name, values in times(ours).items()},
        "kinds": {kind: _kind_summary([one for one in completed if one.kind == kind]) for kind in kinds},
        "fairness": fairness(completed, weights),
    }


def times(outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    """Seconds by what they measure, of the requests that got so far. `time_to_result` is as the client saw it,
    `time_to_end` by the server's clock: polling adds to the first alone."""
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
    """Jain's index of fairness: 1 where all have the same, 1/n where one of n has everything. None where nobody has
    anything."""
    squares = sum(amount * amount for amount in amounts)
    return sum(amounts) ** 2 / (len(amounts) * squares) if squares else None


def fairness(outcomes: Sequence[Outcome], weights: Mapping[str, float]) -> dict[str, Any]:
    """By tenant: what was asked, what was served, how long it waited. `jain` is of what was served per weight, counted
    in megapixel-steps where all requests say theirs, else in results. It means something where all tenants asked for
    more than they got: one that asked for little and got it lowers it, too."""
    by_work = all(one.shape.work is not None for one in outcomes)
    tenants: dict[str, dict[str, Any]] = {}
    for name, weight in weights.items():
        ours = [one for one in outcomes if one.tenant == name]
        waits = times(ours)
        tenants[name] = {
            "weight": weight,
            "asked": len(ours),
            "served": sum(one.served for one in ours),
            "refused": sum(one.end == "refused" for one in ours),
            "amount": round(sum((one.shape.work or 0.0) if by_work else 1.0 for one in ours if one.served), 4),
            "time_to_result": _percentiles(waits["time_to_result"]),
            "queue_wait": _percentiles(waits["queue_wait"]),
        }
    index = jain([each["amount"] / each["weight"] for each in tenants.values()]) if len(tenants) > 1 else None
    counted_in = "megapixel-steps" if by_work else "results"
    return {"jain": None if index is None else round(index, 4), "counted_in": counted_in, "tenants": tenants}


def health(outcomes: Sequence[Outcome], strains: Sequence[WorkerStats]) -> dict[str, Any]:
    """Whether the generator was the limit: how late requests were sent and how late event loops woke, in seconds; each
    process's share of one core; and `limits`, in sentences: none says that the figures are the server's."""
    late = Percentiles.from_values([max(0.0, one.sent - one.intended) for one in outcomes if one.sent is not None])
    lag = max((quantile(stats.loop_lag, 0.99) for stats in strains if stats.loop_lag), default=None)
    limits: list[str] = []
    if late and late.p99 > _LATE_S:
        limits.append(f"1 of 100 requests was sent {late.p99:.3f} s late or later ({_LATE_S:g} s are borne)")
    if busy := [stats.cpu for stats in strains if stats.cpu > _BUSY]:
        limits.append(f"{len(busy)} of {len(strains)} generator processes used {max(busy):.0%} of a core")
    if lag is not None and lag > _LATE_S:
        limits.append(f"1 of 100 looks at the event loop found it {lag:.3f} s late or later ({_LATE_S:g} s are borne)")
    return {
        "lateness": late and late.as_json(),
        "cpu": [round(stats.cpu, 3) for stats in strains],
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
    """A run that was made: its outcomes, and what they come to."""

    title: str
    settings: Mapping[str, Any]
    figures: Mapping[str, Any]
    generator: Mapping[str, Any]
    objective: str | None
    solo: Mapping[str, float]
    """Seconds that a request of a kind takes alone, where the objective is a multiple of it."""
    started: float
    """Epoch seconds."""
    interrupted: float | None
    notes: tuple[str, ...] = ()
    """What a reader has to know to read the figures rightly."""
    outcomes: list[Outcome] = field(default_factory=list, repr=False)

    @classmethod
    def from_run(
        cls,
        plan: Plan,
        ran: GeneratorRun,
        objective: Objective | None = None,
        solo: Mapping[str, float] | None = None,
        notes: tuple[str, ...] = (),
    ) -> Self:
        """Marks the outcomes with their objective, and those of the warm-up."""
        kinds = {outcome.kind for outcome in ran.outcomes}
        seconds = objective.seconds_by_kind(kinds, solo or {}) if objective else {}
        for outcome in ran.outcomes:
            outcome.objective = seconds.get(outcome.kind)
            outcome.warm_up = outcome.intended < plan.warm_up
        if plan.duration is None:
            end = max((outcome.final or 0.0 for outcome in ran.outcomes), default=0.0) + 1e-6
        else:
            end = plan.warm_up + plan.duration
        if ran.interrupted is not None:
            end = min(end, ran.interrupted)
        metrics = summarize(ran.outcomes, Window(plan.warm_up, max(plan.warm_up, end)), plan.weights)
        return cls(
            title=plan.title,
            settings=plan.settings,
            figures=metrics,
            generator=health(ran.outcomes, ran.worker_stats),
            objective=str(objective) if objective else None,
            solo={kind: round(value, 4) for kind, value in (solo or {}).items()},
            started=ran.started,
            interrupted=None if ran.interrupted is None else round(ran.interrupted, 3),
            notes=(*notes, *_notes(metrics, ran)),
            outcomes=ran.outcomes,
        )

    @property
    def metrics(self) -> dict[str, float | None]:
        """By the names in METRICS."""
        values, ends = self.figures, self.figures["ends"]
        completed = values["requests"] - ends.get("interrupted", 0)
        took, queue_wait = values["time_to_result"] or {}, values["queue_wait"] or {}
        counts = (values["requests"], *(ends.get(end, 0) for end in ("served", "refused", "failed")), values["lost"])
        errors = 1 - ends.get("served", 0) / completed if completed else None
        rates = (
            errors,
            values["attainment"],
            values["goodput_per_s"],
            values["throughput_per_s"],
            values["fairness"]["jain"],
        )
        spreads = (each.get(name) for each in (took, queue_wait) for name in _PERCENTILES)
        return dict(zip(METRICS, (*counts, *rates, *spreads), strict=True))

    def as_json(self) -> dict[str, Any]:
        return {"kind": "run"} | {name: getattr(self, name) for name in self.__slots__ if name != "outcomes"}

    def write(self, folder: Path) -> None:
        """The rows, as JSON and as CSV, and the summary."""
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


def _notes(metrics: Mapping[str, Any], ran: GeneratorRun) -> list[str]:
    notes: list[str] = []
    if ran.interrupted is not None:
        notes.append(f"interrupted after {ran.interrupted:.1f} s; what had not ended by then is left out of shares")
    if metrics["megapixel_steps_per_s"] is None:
        notes.append("no megapixel-steps: some requests leave their size or steps to the server")
    wait = metrics["queue_wait"]
    if wait and wait["p50"] < _CLOCKS_S:
        notes.append("the server's clock is behind this machine's: queue waits are wrong by the difference")
    return notes


@dataclass(slots=True)
class Sweep:
    """Runs at several rates."""

    runs: list[RunResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def rates(self) -> list[dict[str, Any]]:
        """By rate, rising."""
        return [_rate_summary(run) for run in sorted(self.runs, key=lambda run: run.settings["rate"])]

    def as_json(self) -> dict[str, Any]:
        first = self.runs[0] if self.runs else None
        head = {"settings": first and first.settings, "objective": first and first.objective}
        return {"kind": "sweep", **head, "rates": self.rates(), "notes": self.notes}

    def write(self, folder: Path) -> None:
        """The summary, and a folder for each run."""
        for number, run in enumerate(self.runs, start=1):
            run.write(folder / f"{number:02}-{run.settings['rate']:.4g}-per-s")
        write_summary(self.as_json(), folder)


def _rate_summary(run: RunResult) -> dict[str, Any]:
    names = ("requests", "attainment", "goodput", "throughput", "p50", "p99", "refused", "failed", "lost")
    metrics = run.metrics
    values = {name: metrics[name] for name in names}
    return {"rate": run.settings["rate"], **values, "generator_was_limit": bool(run.generator["limits"])}
