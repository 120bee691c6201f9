"""All rounds in figures: medians with intervals, and where the service is behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gen_serve_bench.results import quantile

from benchmarks.interval import Interval
from benchmarks.peers.asked import Asked
from benchmarks.peers.measuring import MIXED, ONE_SHAPE, Measured, Solo
from benchmarks.peers.plan import Plan


@dataclass(frozen=True, slots=True)
class Round:
    """All sides in one round, by name; the loop's own figures of that round are what others are measured by."""

    solo: Solo
    sides: Mapping[str, Measured]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of all sides that have it."""

    name: str
    unit: str
    more_is_better: bool
    sides: Mapping[str, Interval]

    def behind(self, side: str) -> float | None:
        """How many times better the best other one is; at most 1 where none is. None where nothing can be compared.

        A best of zero, which only counts of losses have, is infinitely better than anything above.
        """
        others = [interval.middle for name, interval in self.sides.items() if name != side]
        if side not in self.sides or not others:
            return None
        own, best = self.sides[side].middle, max(others) if self.more_is_better else min(others)
        over, under = (best, own) if self.more_is_better else (own, best)
        if under == 0:
            return 1.0 if over == 0 else float("inf")
        return over / under

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "more_is_better": self.more_is_better,
            "sides": {name: interval.as_json() for name, interval in self.sides.items()},
        }


def rows(rounds: Sequence[Round], plan: Plan) -> list[Row]:
    """A value per side and round for each row, and the median of them; what a side lacks in one round it lacks."""
    made = [
        _row(rounds, f"pictures/s, {ONE_SHAPE}", "", True, lambda one, _: one.pictures_per_s[ONE_SHAPE]),
        _row(rounds, f"pictures/s, {MIXED}", "", True, lambda one, _: one.pictures_per_s[MIXED]),
    ]
    for load in plan.loads:
        made += [
            _row(rounds, f"goodput at {load:g}", "/s", True, _goodput(plan, load)),
            _row(rounds, f"time to result at {load:g}, p50", "s", False, _total(load, 0.5)),
            _row(rounds, f"time to result at {load:g}, p99", "s", False, _total(load, 0.99)),
        ]
    made += [
        _row(rounds, "CPU of a submission", "ms", False, lambda one, _: one.submit_cpu_ms),
        _row(rounds, "CPU of a poll", "ms", False, lambda one, _: one.poll_cpu_ms),
        _row(rounds, "idle, id to the model's start, p50", "ms", False, _handoff(_from_id, 0.5)),
        _row(rounds, "idle, id to the model's start, p99", "ms", False, _handoff(_from_id, 0.99)),
        _row(rounds, "idle, request to the model's start, p50", "ms", False, _handoff(_from_request, 0.5)),
        _row(rounds, "idle, request to the model's start, p99", "ms", False, _handoff(_from_request, 0.99)),
    ]
    for victim in dict.fromkeys(name for one in rounds for made_by in one.sides.values() for name in made_by.killed):
        made += [
            _row(rounds, f"lost by kill -9 of {victim}", "%", False, _lost(victim)),
            _row(rounds, f"longest wait after kill -9 of {victim}", "s", False, _longest(victim)),
        ]
    made += [
        _row(rounds, "memory at rest", "MiB", False, lambda one, _: one.memory_mib),
        _row(rounds, "start to the first picture", "s", False, lambda one, _: one.start_s),
    ]
    return [row for row in made if row.sides]


def behind_first(found: Sequence[Row], side: str) -> list[tuple[Row, float | None]]:
    """With how far that side is behind: the worst first, then those in their order where it is not."""
    measured = [(row, row.behind(side)) for row in found]
    behind = [(row, factor) for row, factor in measured if factor is not None and factor > 1]
    rest = [(row, factor) for row, factor in measured if factor is None or factor <= 1]
    return sorted(behind, key=lambda one: -(one[1] or 0)) + rest


def goodput(asked: Sequence[Asked], solo: Solo, within: float, seconds: float) -> float:
    """Pictures per second of arrivals that came within so many times what their shape takes alone."""
    good = [
        one
        for one in asked
        if one.drawn and one.total is not None and one.total <= within * solo.seconds[one.request.shape]
    ]
    return len(good) / seconds


_Value = Callable[[Measured, Solo], float | None]


def _row(rounds: Sequence[Round], name: str, unit: str, more_is_better: bool, value: _Value) -> Row:
    values: dict[str, list[float]] = {}
    for one in rounds:
        for side, measured in one.sides.items():
            if (found := value(measured, one.solo)) is not None:
                values.setdefault(side, []).append(found)
    sides = {side: Interval.of_median(found) for side, found in values.items() if len(found) == len(rounds)}
    return Row(name, unit, more_is_better, sides)


def _goodput(plan: Plan, load: float) -> _Value:
    return lambda one, solo: goodput(one.open_loop[load], solo, plan.within, plan.load_s)


def _total(load: float, q: float) -> _Value:
    def value(one: Measured, _: Solo) -> float | None:
        totals = [asked.total for asked in one.open_loop[load] if asked.total is not None]
        return quantile(totals, q) if totals else None

    return value


def _handoff(since: Callable[[Asked], float | None], q: float) -> _Value:
    def value(one: Measured, _: Solo) -> float | None:
        waits = [wait for asked in one.handoffs if (wait := since(asked)) is not None]
        return quantile(waits, q) if waits else None

    return value


def _from_id(asked: Asked) -> float | None:
    return None if asked.started is None or asked.accepted is None else 1000 * (asked.started - asked.accepted)


def _from_request(asked: Asked) -> float | None:
    return None if asked.started is None else 1000 * (asked.started - asked.scheduled)


def _lost(victim: str) -> _Value:
    def value(one: Measured, _: Solo) -> float | None:
        killed = one.killed.get(victim)
        return None if killed is None else 100 * killed.lost / killed.sent

    return value


def _longest(victim: str) -> _Value:
    return lambda one, _: killed.longest_s if (killed := one.killed.get(victim)) else None
