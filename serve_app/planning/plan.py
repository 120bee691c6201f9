"""A capacity plan: latency, utilisation and cost by number of replicas, and the fewest that meet the objectives."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from serve_app.config.model_settings import AutoscalingSettings
from serve_app.planning.profile import ModelProfile
from serve_app.planning.simulation import QueueSimulation, SimulatedTask, SimulationResult

_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_OBJECTIVE: Final = re.compile(r"(p50|p90|p95|p99)(?:=|<=?)([0-9.]+)(ms|s|m|h)?")
_UNITS_S: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, None: 1}
_GROWTH: Final = 1.25
"""Factor to the next number of replicas tried while the objectives are not met."""


@dataclass(frozen=True, slots=True)
class Objective:
    """An upper bound in seconds of a quantile of the time to the result."""

    quantile: str
    seconds: float

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Parses `p99=20s`. Raises ValueError."""
        match = _OBJECTIVE.fullmatch(text.replace(" ", ""))
        if match is None:
            raise ValueError(f"an objective is written like p99=20s, with p50, p90, p95 or p99, not {text!r}")
        return cls(match[1], float(match[2]) * _UNITS_S[match[3]])


@dataclass(frozen=True, slots=True)
class PlanRow:
    """The prediction for a number of replicas. Times are in seconds."""

    replicas: str
    """A number, or `min-max` with autoscaling."""
    p50: float
    p95: float
    p99: float
    goodput: float
    """Results per second within the tightest objective; all results without one."""
    utilisation: float
    """Share of the replicas' time spent in steps."""
    gpu_hours: float
    cost: float
    meets: bool
    """True if all objectives are met."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Simulates one load with different numbers of replicas. `arrivals` are in order of time."""

    arrivals: Sequence[SimulatedTask]
    profile: ModelProfile
    objectives: Sequence[Objective] = ()
    gpu_price: float = 0.0
    """Price of a replica's hour."""
    losses_per_hour: float = 0.0
    """Mean losses of each replica per hour."""
    duration_s: float = 0.0
    """Duration of the load, which may end after its last arrival."""
    seed: int = 0

    def simulate(self, scaling: AutoscalingSettings) -> SimulationResult:
        arrivals, losses = [replace(task) for task in self.arrivals], self.losses_per_hour
        simulation = QueueSimulation(arrivals, self.profile, scaling, losses_per_hour=losses, seed=self.seed)
        return simulation.run(self.duration_s)

    def evaluate(self, scaling: AutoscalingSettings) -> PlanRow:
        minimum, maximum, result = scaling.min_replicas, scaling.max_replicas, self.simulate(scaling)
        ordered = sorted(result.results)
        p = {name: ordered[math.ceil(fraction * len(ordered)) - 1] for name, fraction in _QUANTILES.items()}
        bound = min((each.seconds for each in self.objectives), default=math.inf)
        return PlanRow(
            replicas=str(minimum) if minimum == maximum else f"{minimum}-{maximum}",
            p50=round(p["p50"], 3),
            p95=round(p["p95"], 3),
            p99=round(p["p99"], 3),
            goodput=round(sum(took <= bound for took in ordered) / result.elapsed_s, 3),
            utilisation=round(result.busy_s / result.replica_s, 3) if result.replica_s else 0.0,
            gpu_hours=round(result.replica_s / 3600, 3),
            cost=round(result.replica_s / 3600 * self.gpu_price, 2),
            meets=all(p[each.quantile] <= each.seconds for each in self.objectives),
        )

    def search_fixed(self, max_replicas: int, on_row: Callable[[PlanRow], None] = lambda _: None) -> list[PlanRow]:
        """Searches the smallest fixed number of replicas that meets the objectives, up to `max_replicas`.

        Returns all numbers tried, ascending, and one above the solution. Without objectives, it tries the lower bound.
        """
        rows: dict[int, PlanRow] = {}

        def meets(count: int) -> bool:
            if count not in rows:
                rows[count] = self.evaluate(AutoscalingSettings(min_replicas=count, max_replicas=count))
                on_row(rows[count])
            return rows[count].meets

        enough = min(self._lower_bound(), max_replicas)
        too_few = 0 if self.objectives else enough - 1
        while not meets(enough) and enough < max_replicas:
            too_few, enough = enough, min(max_replicas, max(enough + 1, math.ceil(enough * _GROWTH)))
        while enough - too_few > 1 and rows[enough].meets:
            middle = (too_few + enough) // 2
            too_few, enough = (too_few, middle) if meets(middle) else (middle, enough)
        if enough < max_replicas:
            meets(enough + 1)
        return [rows[count] for count in sorted(rows)]

    def _lower_bound(self) -> int:
        """Returns the number of replicas that steps in full batches would keep busy all the time."""
        shared = self.profile.fixed_s / self.profile.max_batch
        work_s = sum(
            task.total_steps * (shared + self.profile.per_megapixel_s * task.megapixels) for task in self.arrivals
        )
        return max(1, math.floor(work_s / max(self.arrivals[-1].at, 1.0)))


def cheapest(rows: Sequence[PlanRow]) -> PlanRow | None:
    """Returns the row with the fewest GPU hours that meets all objectives, if any."""
    return min((row for row in rows if row.meets), key=lambda row: row.gpu_hours, default=None)


def draw(rows: Sequence[PlanRow], objectives: Sequence[Objective]) -> str:
    """Draws p50 and p99 by fixed number of replicas, and the objectives as lines, as SVG with a logarithmic scale."""
    fixed = [row for row in rows if "-" not in row.replicas]
    values = [value for row in fixed for value in (row.p50, row.p99)] + [each.seconds for each in objectives]
    low, high = math.log10(max(min(values), 1e-3)) - 0.1, math.log10(max(*values, 2e-3)) + 0.1
    first, last = int(fixed[0].replicas), int(fixed[-1].replicas)

    def x(replicas: float) -> float:
        return 60 + 540 * (replicas - first) / max(last - first, 1)

    def y(seconds: float) -> float:
        return 300 - 260 * (math.log10(max(seconds, 1e-3)) - low) / (high - low)

    def line(name: str, colour: str) -> str:
        values: Mapping[str, float] = {row.replicas: getattr(row, name) for row in fixed}
        points = " ".join(f"{x(int(count)):.1f},{y(value):.1f}" for count, value in values.items())
        end = y(values[fixed[-1].replicas])
        return (
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
            f'<text x="605" y="{end:.1f}" fill="{colour}">{name}</text>'
        )

    marks = "".join(f'<text x="{x(int(row.replicas)):.1f}" y="320">{row.replicas}</text>' for row in fixed)
    scale = "".join(
        f'<text x="4" y="{y(10.0**power):.1f}">{10.0**power:g} s</text>'
        for power in range(math.ceil(low), math.floor(high) + 1)
    )
    limits = "".join(
        f'<line x1="60" x2="600" y1="{y(each.seconds):.1f}" y2="{y(each.seconds):.1f}" stroke="#a00" '
        f'stroke-dasharray="4"/><text x="64" y="{y(each.seconds) - 4:.1f}" fill="#a00">'
        f"{each.quantile} at most {each.seconds:g} s</text>"
        for each in objectives
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="350" font-family="sans-serif" font-size="12">'
        f"<title>Time to the result by number of replicas</title>{scale}{marks}{limits}"
        f'{line("p50", "#06c")}{line("p99", "#c60")}<text x="260" y="342">replicas</text></svg>\n'
    )
