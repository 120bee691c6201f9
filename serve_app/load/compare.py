"""Two runs against each other: how they differ, and whether that is more than chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from serve_app.load.figures import times
from serve_app.load.interval import Interval
from serve_app.load.measured import Measured
from serve_app.load.outcome import Outcome
from serve_app.load.spread import quantile

_TIMES: Final = ("acknowledgement", "queue_wait", "service_time", "time_to_result")
_QUANTILES: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_LEAST: Final[Mapping[str, int]] = {"p50": 5, "p90": 50, "p99": 500}
"""Values without which a quantile is one of the last few, and its interval none."""
_RATES: Final = ("goodput", "throughput", "megapixel_steps")
_ALIKE: Final = 1.1
"""Times one another that two servers' times alone may be, for multiples of them to be one objective."""
_SLICES: Final = 20


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure of the second run to that of the first."""

    name: str
    first: float
    second: float
    ratio: Interval | None
    """None where it can't be said how sure it is."""
    verdict: str

    def as_json(self) -> dict[str, Any]:
        """An interval without an upper end has None there."""
        told = asdict(self)
        if self.ratio and math.isinf(self.ratio.high):
            told["ratio"]["high"] = None
        return told


@dataclass(frozen=True, slots=True)
class Comparison:
    differences: tuple[str, ...]
    """In what the runs did not do the same. With any, the ratios say nothing of the servers."""
    ratios: tuple[Ratio, ...]

    def as_json(self) -> dict[str, Any]:
        return {"differences": list(self.differences), "ratios": [ratio.as_json() for ratio in self.ratios]}


def compared(first: Measured, second: Measured) -> Comparison:
    return Comparison(tuple(_differences(first, second)), tuple(_ratios(first, second)))


def _differences(first: Measured, second: Measured) -> list[str]:
    told: list[str] = []
    names = {"digest": "what was sent"}
    for name, value in first.settings["work"].items():
        if name not in second.settings["work"]:  # of a release that did not note it
            continue
        other = second.settings["work"][name]
        if value != other:
            if name == "digest":
                value, other = first.settings["source"], second.settings["source"]
                value, other = (value, other) if value != other else (f"{value} as it was", "as it is now")
            told.append(f"{names.get(name, name)}: {value} against {other}")
    if first.objective != second.objective:
        told.append(f"objective: {first.objective} against {second.objective}")
    for kind, alone in first.solo.items():
        other = second.solo.get(kind, alone)
        if max(alone, other) > _ALIKE * min(alone, other):
            told.append(f"objective of {kind}, alone: {alone:.3g} s against {other:.3g} s")
    for name, run in (("first", first), ("second", second)):
        if run.generator["limits"]:
            told.append(f"the generator was the limit of the {name} run: {'; '.join(run.generator['limits'])}")
        if run.interrupted is not None:
            told.append(f"the {name} run was interrupted after {run.interrupted:g} s")
    return told


def _ratios(first: Measured, second: Measured) -> list[Ratio]:
    ours, theirs = _counted(first), _counted(second)
    if not ours or not theirs:
        return _without_rows(first, second)
    told: list[Ratio] = []
    over, under = times(theirs), times(ours)
    for name in _TIMES:
        for label, q in _QUANTILES.items():
            if min(len(over[name]), len(under[name])) >= _LEAST[label] and min(under[name]) > 0:
                ratio = Interval.of_ratio(over[name], under[name], q=q)
                was, came = quantile(under[name], q), quantile(over[name], q)
                told.append(Ratio(f"{name} {label}", was, came, ratio, _verdict(ratio, "longer", "shorter")))
    for name in _RATES:
        told += _rate(name, first, second)
    return told


def _rate(name: str, first: Measured, second: Measured) -> list[Ratio]:
    was, came = first.figures[f"{name}_per_s"], second.figures[f"{name}_per_s"]
    if not was or came is None:
        return []
    ratio = Interval.of_mean_ratio(_by_slice(name, second), _by_slice(name, first))
    return [Ratio(f"{name} per s", was, came, ratio, _verdict(ratio, "more", "less"))]


def _by_slice(name: str, run: Measured) -> list[float]:
    """What each of equally long parts of the run brought, per second: they are what is drawn anew, so that the chance
    of arrivals counts, too, and what happens at about the same time stays together."""
    begin, seconds = run.settings["warm_up"], run.figures["seconds"]
    slices = [0.0] * _SLICES
    for one in run.outcomes:
        # As `figures` counts them: goodput by when it was asked for, the others by when it came.
        moment = one.intended if name == "goodput" else one.final
        counts = one.good and not one.warm_up if name == "goodput" else one.served
        if counts and moment is not None and begin <= moment < begin + seconds:
            amount = one.shape.work or 0.0 if name == "megapixel_steps" else 1.0
            slices[min(_SLICES - 1, int((moment - begin) / seconds * _SLICES))] += amount * _SLICES / seconds
    return slices


def _counted(run: Measured) -> list[Outcome]:
    return [one for one in run.outcomes if not one.warm_up and one.end != "interrupted"]


def _without_rows(first: Measured, second: Measured) -> list[Ratio]:
    told: list[Ratio] = []
    for name in _TIMES:
        was, came = first.figures[name], second.figures[name]
        told += [
            Ratio(f"{name} {label}", was[label], came[label], None, "raw rows are missing: it may be chance")
            for label in _QUANTILES
            if was and came
        ]
    return told


def _verdict(ratio: Interval, above: str, below: str) -> str:
    if not ratio.excludes(1):
        return "no difference that is more than chance"
    return f"{above if ratio.middle > 1 else below} than in the first"
