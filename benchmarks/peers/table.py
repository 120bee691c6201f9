"""The comparison for people: one table, where the service is behind first, and one plot."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.interval import Interval
from benchmarks.peers.results import Row, behind_first

_GOODPUT = "goodput at "


def table(found: Sequence[Row], sides: Sequence[str], own: str, rounds: int) -> Table:
    """A row per figure, a column per side; the last one says how many times better the best other one is."""
    title = f"peers, medians of {rounds} rounds; where {own} is behind comes first"
    shown = Table("", *sides, "behind", title=title, title_justify="left")
    shown.columns[0].no_wrap = True
    for column in shown.columns[1:]:
        column.justify = "right"
    for row, factor in behind_first(found, own):
        values = [f"{row.sides[side].middle:.3g}" if side in row.sides else "" for side in sides]
        name = f"{row.name}, {row.unit}" if row.unit else row.name
        shown.add_row(name, *values, _times(factor), style="yellow" if factor is not None and factor > 1 else "")
    return shown


def draw(found: Sequence[Row], sides: Sequence[str], path: Path) -> Figure:
    """Pictures per second at saturation, and goodput over load; bars and whiskers are medians and their intervals."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    saturated, loaded = figure.subplots(1, 2)
    rates = [row for row in found if row.name.startswith("pictures/s")]
    for place, side in enumerate(sides):
        having = [(number, row.sides[side]) for number, row in enumerate(rates) if side in row.sides]
        saturated.bar(
            [number + (place - len(sides) / 2 + 0.5) * 0.8 / len(sides) for number, _ in having],
            [interval.middle for _, interval in having],
            0.8 / len(sides),
            yerr=_whiskers([interval for _, interval in having]),
            label=side,
        )
    saturated.set_xticks(range(len(rates)), [row.name.removeprefix("pictures/s, ") for row in rates])
    saturated.set(title="saturated", ylabel="pictures/s")
    saturated.legend(fontsize="x-small")
    goods = [row for row in found if row.name.startswith(_GOODPUT)]
    for side in sides:
        having = [(float(row.name.removeprefix(_GOODPUT)), row.sides[side]) for row in goods if side in row.sides]
        intervals = [interval for _, interval in having]
        loads, middles = [load for load, _ in having], [interval.middle for interval in intervals]
        loaded.errorbar(loads, middles, yerr=_whiskers(intervals), marker=".", capsize=2, label=side)
    loaded.set(title="pictures in time", xlabel="arrivals, of what the loop draws", ylabel="pictures/s")
    loaded.legend(fontsize="x-small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return figure


def _whiskers(intervals: Sequence[Interval]) -> list[list[float]]:
    below = [interval.middle - interval.low for interval in intervals]
    return [below, [interval.high - interval.middle for interval in intervals]]


def _times(factor: float | None) -> str:
    if factor is None or factor <= 1:
        return ""
    return "∞" if isinf(factor) else f"{factor:.2f}x"
