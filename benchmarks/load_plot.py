"""A load run in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.outcomes import Outcome, times

_NAMES = {
    "acknowledgement": "until accepted",
    "queue_wait": "in the queue",
    "service": "at work",
    "total": "until the result",
}


def draw(outcomes: Sequence[Outcome], slo: float, title: str, path: Path) -> None:
    """Left: share of tasks by time. Right: every task by its arrival, above or below the objective."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    shares, course = figure.subplots(1, 2)

    for name, values in times(outcomes).items():
        ordered = sorted(max(value, 1e-4) for value in values)
        shares.step(ordered, [(n + 1) / len(ordered) for n in range(len(ordered))], where="post", label=_NAMES[name])
    shares.axvline(slo, color="grey", linestyle=":", label=f"objective, {slo:g} s")
    shares.set(xscale="log", xlabel="seconds", ylabel="share of tasks", ylim=(0, 1.02))
    shares.legend(loc="lower right", fontsize="small")

    origin = min((one.scheduled for one in outcomes), default=0.0)
    for label, colour, chosen in (
        ("in time", "tab:green", [one for one in outcomes if one.good(slo)]),
        ("late or failed", "tab:orange", [one for one in outcomes if one.total is not None and not one.good(slo)]),
    ):
        moments, totals = [one.scheduled - origin for one in chosen], [one.total or 0.0 for one in chosen]
        course.scatter(moments, totals, s=14, color=colour, label=label)
    for outcome in outcomes:
        if outcome.total is None:
            course.axvline(outcome.scheduled - origin, color="tab:red", linewidth=0.8)
    course.axhline(slo, color="grey", linestyle=":")
    course.set(xlabel="arrival, seconds", ylabel="seconds until the result", ylim=(0, None))
    course.legend(loc="upper left", fontsize="small")

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
