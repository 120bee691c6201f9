"""The report: tables for a terminal and the same in one page, with charts, that opens anywhere and runs no script."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import jinja2
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gen_serve_bench.results import TIMES, Measured, Sweep, times

_SPREAD: Final = {"n": "n", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "p999": "p99.9", "max": "max"}
_COLOURS: Final = {"served": "#15803d", "late": "#c2610c", "refused": "#6d28d9", "failed": "#b91c1c", "lost": "#111827"}
_CURVES: Final = {
    "share within the objective": {"attainment": "attainment"},
    "time to result, s": {"p50": "p50", "p99": "p99"},
    "results per second": {"goodput": "within the objective", "throughput": "all results"},
}
"""Of a sweep, by its rates."""


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def tables_of_run(run: Measured) -> list[Table]:
    told, took = run.figures, run.figures["fairness"]
    found = [
        Table(
            "Times",
            ("seconds", *_SPREAD.values()),
            [(name, *_spread(told[key])) for key, name in TIMES.items() if told[key]],
            "From the moment a request was to be sent. Polling adds to the time until the result, not to the one by "
            "the server's clock.",
        ),
        Table("What became of them", ("what", "value"), list(_facts(told))),
        Table(
            "By kind of request",
            ("kind", "requests", "served", "objective", "attainment", *_SPREAD.values()),
            [
                (
                    kind,
                    *map(number, (of["requests"], of["served"], of["objective_s"], of["attainment"])),
                    *_spread(of["time_to_result"]),
                )
                for kind, of in told["kinds"].items()
            ],
        ),
    ]
    if len(took["tenants"]) > 1:
        amounts = ("weight", "asked", "served", "refused", "amount")
        found.append(
            Table(
                "By tenant",
                ("tenant", *amounts[:-1], took["counted_in"], *_SPREAD.values()),
                [
                    (name, *(number(of[each]) for each in amounts), *_spread(of["time_to_result"]))
                    for name, of in took["tenants"].items()
                ],
                f"Jain's index is {number(took['jain'])}, of what was served per weight: 1 is even.",
            )
        )
    return [*found, _of_generator(run)]


def tables_of_sweep(sweep: Sweep) -> list[Table]:
    rates = sweep.rates()
    heads = tuple(rates[0]) if rates else ("rate",)
    return [Table("Rates", heads, [tuple(map(number, each.values())) for each in rates])]


def _of_generator(run: Measured) -> Table:
    told = run.generator
    rows = [
        ("sent late by, p99, s", number((told["lateness"] or {}).get("p99"))),
        ("event loop late by, p99, s", number(told["loop_lag_p99"])),
        ("share of a core, by process", ", ".join(map(number, told["cpu"]))),
    ]
    return Table("The generator", ("what", "value"), rows)


def _facts(told: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name in ("requests", "attainment", "goodput_per_s", "throughput_per_s", "megapixel_steps_per_s"):
        yield name.replace("_per_s", " per s").replace("_", " "), number(told[name])
    for end, count in told["ends"].items():
        yield end, str(count)
    for kind, ending in (("refusals", "refused"), ("failures", "failed")):
        for reason, count in told[kind].items():
            yield f"{ending}: {reason}", str(count)
    yield "polls per task", number(told["polls_per_task"])
    yield "polls that failed", str(told["poll_errors"])
    if (index := told["fairness"]["jain"]) is not None:
        yield f"Jain's index, {told['fairness']['counted_in']}", number(index)


def _spread(spread: Mapping[str, float] | None) -> list[str]:
    return [number(spread[name] if spread else None) for name in _SPREAD]


def number(value: float | bool | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def show(tables: Iterable[Table], lines: Iterable[str]) -> None:
    """On standard output."""
    console = Console()
    console = console if console.is_terminal else Console(width=1000)
    for table in tables:
        shown = RichTable(*table.heads, box=None, pad_edge=False, padding=(0, 3, 0, 0))
        for row in table.rows:
            shown.add_row(*map(Text, row))
        console.print(shown)
        console.print()
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def page_of_run(run: Measured) -> str:
    told = run.figures
    took = told["time_to_result"] or {}
    cards = {
        f"{'within the objective' if run.objective else 'served'}, of {told['requests']}": number(told["attainment"]),
        "goodput per s": number(told["goodput_per_s"]),
        "results per s": number(told["throughput_per_s"]),
        "time to result, p50, s": number(took.get("p50")),
        "time to result, p99, s": number(took.get("p99")),
    }
    charts = [_svg(draw, run) for draw in (_share_by_time, _course, _pace)]
    return _page(run.title, _subtitle(run), warnings(run), cards, charts, tables_of_run(run))


def page_of_sweep(sweep: Sweep) -> str:
    first = sweep.runs[0] if sweep.runs else None
    title = f"{first.settings['source'] if first else 'nothing'}, at {len(sweep.runs)} rates"
    charts = [_svg(_curves, (sweep.rates(), chart, names)) for chart, names in _CURVES.items()]
    return _page(title, _subtitle(first) if first else "", sweep.notes, {}, charts, tables_of_sweep(sweep))


def warnings(run: Measured) -> list[str]:
    """What has to be read before the figures, the worst first."""
    found = [f"{run.figures['lost']} accepted tasks never ended"] if run.figures["lost"] else []
    if limits := run.generator["limits"]:
        found.append(f"the generator was the limit, so figures are not the server's alone: {'; '.join(limits)}")
    return [*found, *run.notes]


def _subtitle(run: Measured) -> str:
    settings = {name: value for name, value in run.settings.items() if value is not None and name != "source"}
    when = f"{datetime.fromtimestamp(run.started, UTC):%Y-%m-%d %H:%M:%S} UTC"
    objective = [f"objective {run.objective}"] if run.objective else []
    return " · ".join([when, *(f"{name.replace('_', ' ')} {value}" for name, value in settings.items()), *objective])


def _page(
    title: str,
    subtitle: str,
    notes: Sequence[str],
    cards: Mapping[str, str],
    charts: Sequence[str],
    tables: Sequence[Table],
) -> str:
    template = (Path(__file__).parent / "report.html").read_text()
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    told = {"title": title, "subtitle": subtitle, "notes": notes, "cards": cards, "charts": charts, "tables": tables}
    return environment.from_string(template).render(told)


def _svg(draw: Callable[[Axes, Any], None], told: Any) -> str:
    """The address of a picture, which is in it."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "gen-serve-bench", "font.size": 9}):
        figure = Figure(figsize=(5, 3), layout="constrained")
        canvas = FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.grid(alpha=0.3)
        draw(axes, told)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize="small", frameon=False)
        file = io.BytesIO()
        canvas.print_svg(file, metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"


def _share_by_time(axes: Axes, run: Measured) -> None:
    for name, values in times([one for one in run.outcomes if not one.warm_up]).items():
        if values:
            axes.ecdf(values, label=TIMES[name])
    axes.set(title="share of requests that took no longer", xlabel="seconds", xscale="log", ylim=(0, 1))


def _course(axes: Axes, run: Measured) -> None:
    for end, colour in _COLOURS.items():
        ours = [one for one in run.outcomes if ("late" if one.served and not one.good else one.end) == end]
        until = [(one.final or one.intended) - one.intended for one in ours]
        if ours:
            axes.plot([one.intended for one in ours], until, ".", markersize=3, color=colour, label=end)
    axes.set(title="each request", xlabel="when it was to be sent, s", ylabel="seconds to its end")


def _pace(axes: Axes, run: Measured) -> None:
    asked = [one.intended for one in run.outcomes]
    came = [one.final for one in run.outcomes if one.served and one.final is not None]
    length = max([1.0, *asked, *came])
    for name, moments in (("asked for", asked), ("results", came)):
        axes.hist(
            moments, bins=40, range=(0, length), histtype="step", label=name, weights=[40 / length] * len(moments)
        )
    axes.set(title="per second", xlabel="seconds after the start")


def _curves(axes: Axes, told: tuple[Sequence[Mapping[str, Any]], str, Mapping[str, str]]) -> None:
    rates, title, names = told
    for name, label in names.items():
        points = [(each["rate"], each[name]) for each in rates if each[name] is not None]
        axes.plot([rate for rate, _ in points], [value for _, value in points], marker=".", label=label)
    axes.set(title=title, xlabel="requests per second")
    axes.set_ylim(bottom=0)
