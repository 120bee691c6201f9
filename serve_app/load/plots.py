"""What a report shows of runs in pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from serve_app.load.figures import times
from serve_app.load.measured import Measured
from serve_app.load.outcome import Outcome
from serve_app.load.svg import Axis, Plot, Point

NAMES: Final[Mapping[str, str]] = {
    "acknowledgement": "until accepted",
    "queue_wait": "in the queue",
    "service_time": "at work",
    "time_to_end": "until the end, by the server's clock",
    "time_to_result": "until the result",
}
_LEAST_S: Final = 1e-3
"""What is shorter stands at the edge of a logarithmic axis."""
_DOTS: Final = 3000
_CURVE: Final = 400
_SLICES: Final = 60


def of_run(run: Measured) -> list[str]:
    counted = [one for one in run.outcomes if not one.warm_up]
    return [_shares(run, counted), _course(run), _pace(run)]


def of_sweep(rates: Sequence[Mapping[str, Any]], share: float | None) -> list[str]:
    """`rates`: dictionaries of `rate`, `attainment`, `goodput_per_s`, `p50`, `p99`."""
    x = Axis.over("requests per second", [each["rate"] for each in rates], least=0.0)
    attained = Plot("Share of requests within the objective, by rate", x, Axis("share", 0, 1))
    attained.line(_points(rates, "attainment"), "s1", "attainment", marks=True)
    if share is not None:
        attained.across(share, f"{share:g}")
    goodputs = [value for each in rates if (value := each["goodput_per_s"]) is not None]
    goodput = Plot("Results within the objective, by rate", x, Axis.over("per second", goodputs, least=0.0))
    goodput.line(_points(rates, "goodput_per_s"), "s2", "goodput", marks=True)
    seconds = [each[name] for each in rates for name in ("p50", "p99") if each[name] is not None]
    waits = Plot("Time to result, by rate", x, Axis.over("seconds", seconds, log=True))
    for css, name in (("s1", "p50"), ("s3", "p99")):
        waits.line(_points(rates, name), css, name, marks=True)
    return [attained.svg(), goodput.svg(), waits.svg()]


def _points(rates: Sequence[Mapping[str, Any]], name: str) -> list[Point]:
    return [(each["rate"], each[name]) for each in rates if each[name] is not None]


def _shares(run: Measured, counted: Sequence[Outcome]) -> str:
    """How many took at most how long."""
    measured = {name: sorted(max(value, _LEAST_S) for value in values) for name, values in times(counted).items()}
    seconds = [value for values in measured.values() for value in values]
    plot = Plot("How long it took", Axis.over("seconds", seconds, log=True), Axis("share of tasks", 0, 1))
    for number, (name, values) in enumerate(measured.items(), start=1):
        at = sorted({round(n * (len(values) - 1) / _CURVE) for n in range(_CURVE + 1)}) if values else []
        plot.line([(values[n], (n + 1) / len(values)) for n in at], f"s{number}", NAMES[name], steps=True)
    for seconds_ in sorted({one.objective for one in counted if one.objective is not None})[:3]:
        plot.upright(seconds_, f"{seconds_:g} s")
    return plot.svg()


def _course(run: Measured) -> str:
    """Every request by the moment it was to be sent."""
    took = [value for one in run.outcomes if (value := one.time_to_result) is not None]
    x = Axis.over("seconds after the start", [one.intended for one in run.outcomes], least=0.0)
    y = Axis.over("seconds until the result", [max(value, _LEAST_S) for value in took], log=True)
    every = max(1, len(took) // _DOTS)
    title = "Every request" if every == 1 else f"Every {every}th request that was served, and all others"
    plot = Plot(f"{title}, by its moment", x, y)
    served = [one for one in run.outcomes if one.served][::every]
    for css, label, good in (("good", "in time", True), ("late", "late", False)):
        chosen = [(one.intended, one.time_to_result or 0.0) for one in served if one.good is good]
        plot.dots(chosen, css, label, radius=_radius(len(served)))
    others = [one for one in run.outcomes if not one.served]
    plot.dots(
        [(one.intended, y.high) for one in others[:_DOTS]],
        "bad",
        "refused, failed, lost: at the top",
        radius=_radius(len(others)),
    )
    if run.settings["warm_up"]:
        plot.upright(run.settings["warm_up"], "warm-up")
    return plot.svg()


def _radius(dots: int) -> float:
    return 3.2 if dots < 300 else 1.8


def _pace(run: Measured) -> str:
    """Arrivals and results as time goes on."""
    arrivals = [one.intended for one in run.outcomes]
    results = [one.final for one in run.outcomes if one.served and one.final is not None]
    last = max([*arrivals, *results], default=1.0)
    # A curve of few requests is one of chance.
    slices = min(_SLICES, max(4, len(arrivals) // 10))
    width = last / slices or 1.0
    curves = {"requests": _per_second(arrivals, width, slices), "results": _per_second(results, width, slices)}
    x = Axis("seconds after the start", 0.0, last or 1.0)
    y = Axis.over("per second", [value for curve in curves.values() for _, value in curve], least=0.0)
    plot = Plot("What was asked, and what came", x, y)
    for css, (name, curve) in zip(("s1", "s2"), curves.items(), strict=True):
        plot.line(curve, css, name, steps=True)
    return plot.svg()


def _per_second(moments: Sequence[float], width: float, slices: int) -> list[Point]:
    """Steps; the last one ends with the last slice."""
    counts = [0] * slices
    for moment in moments:
        counts[min(slices - 1, int(max(0.0, moment) / width))] += 1
    curve = [(number * width, count / width) for number, count in enumerate(counts)]
    return [*curve, (slices * width, curve[-1][1])]
