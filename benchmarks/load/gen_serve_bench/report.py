"""Report of a run or sweep: tables for a terminal, and an HTML page with charts, in one file and without scripts."""

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

from gen_serve_bench.results import TIMES, RunResult, Sweep, times

_PERCENTILES: Final = {"n": "n", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "p999": "p99.9", "max": "max"}
_COLOURS: Final = {"served": "#15803d", "late": "#c2610c", "refused": "#6d28d9", "failed": "#b91c1c", "lost": "#111827"}
_CURVES: Final = {
    "share within the objective": {"attainment": "attainment"},
    "time to result, s": {"p50": "p50", "p99": "p99"},
    "results per second": {"goodput": "within the objective", "throughput": "all results"},
}
"""Charts of a sweep: figures and their labels by title."""


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def run_tables(run: RunResult) -> list[Table]:
    metrics, fairness = run.figures, run.figures["fairness"]
    tables = [
        Table(
            "Times",
            ("seconds", *_PERCENTILES.values()),
            [(name, *_percentiles(metrics[key])) for key, name in TIMES.items() if metrics[key]],
            "Times count from the scheduled start of a request. Polling adds to the time until the result, not to the "
            "time until the end, which is by the server's clock.",
        ),
        Table("Requests", ("figure", "value"), list(_figures(metrics))),
        Table(
            "By kind of request",
            ("kind", "requests", "served", "objective", "attainment", *_PERCENTILES.values()),
            [
                (
                    kind,
                    *map(number, (group["requests"], group["served"], group["objective_s"], group["attainment"])),
                    *_percentiles(group["time_to_result"]),
                )
                for kind, group in metrics["kinds"].items()
            ],
        ),
    ]
    if len(fairness["tenants"]) > 1:
        amounts = ("weight", "asked", "served", "refused", "amount")
        tables.append(
            Table(
                "By tenant",
                ("tenant", *amounts[:-1], fairness["counted_in"], *_PERCENTILES.values()),
                [
                    (name, *(number(group[each]) for each in amounts), *_percentiles(group["time_to_result"]))
                    for name, group in fairness["tenants"].items()
                ],
                f"Jain's index of the served amount per weight is {number(fairness['jain'])}; 1 is fair.",
            )
        )
    return [*tables, _generator_table(run)]


def sweep_tables(sweep: Sweep) -> list[Table]:
    rates = sweep.rates()
    heads = tuple(rates[0]) if rates else ("rate",)
    return [Table("Rates", heads, [tuple(map(number, each.values())) for each in rates])]


def _generator_table(run: RunResult) -> Table:
    metrics = run.generator
    rows = [
        ("sent late by, p99, s", number((metrics["lateness"] or {}).get("p99"))),
        ("event loop late by, p99, s", number(metrics["loop_lag_p99"])),
        ("share of a core, by process", ", ".join(map(number, metrics["cpu"]))),
    ]
    return Table("Generator", ("figure", "value"), rows)


def _figures(metrics: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name in ("requests", "attainment", "goodput_per_s", "throughput_per_s", "megapixel_steps_per_s"):
        yield name.replace("_per_s", " per s").replace("_", " "), number(metrics[name])
    for end, count in metrics["ends"].items():
        yield end, str(count)
    for figure, end in (("refusals", "refused"), ("failures", "failed")):
        for reason, count in metrics[figure].items():
            yield f"{end}: {reason}", str(count)
    yield "polls per task", number(metrics["polls_per_task"])
    yield "polls that failed", str(metrics["poll_errors"])
    if (index := metrics["fairness"]["jain"]) is not None:
        yield f"Jain's index, {metrics['fairness']['counted_in']}", number(index)


def _percentiles(values: Mapping[str, float] | None) -> list[str]:
    return [number(values[name] if values else None) for name in _PERCENTILES]


def number(value: float | bool | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def show(tables: Iterable[Table], lines: Iterable[str]) -> None:
    console = Console()
    console = console if console.is_terminal else Console(width=1000)
    for table in tables:
        rich_table = RichTable(*table.heads, box=None, pad_edge=False, padding=(0, 3, 0, 0))
        for row in table.rows:
            rich_table.add_row(*map(Text, row))
        console.print(rich_table)
        console.print()
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def run_page(run: RunResult) -> str:
    metrics = run.figures
    latency = metrics["time_to_result"] or {}
    attained = "within the objective" if run.objective else "served"
    cards = {
        f"{attained}, of {metrics['requests']}": number(metrics["attainment"]),
        "goodput per s": number(metrics["goodput_per_s"]),
        "results per s": number(metrics["throughput_per_s"]),
        "time to result, p50, s": number(latency.get("p50")),
        "time to result, p99, s": number(latency.get("p99")),
    }
    charts = [_svg(draw, run) for draw in (_time_distribution, _request_scatter, _rate_histogram)]
    return _page(run.title, _subtitle(run), warnings(run), cards, charts, run_tables(run))


def sweep_page(sweep: Sweep) -> str:
    first = sweep.runs[0] if sweep.runs else None
    title = f"{first.settings['source'] if first else 'nothing'}, at {len(sweep.runs)} rates"
    charts = [_svg(_curves, (sweep.rates(), chart, names)) for chart, names in _CURVES.items()]
    return _page(title, _subtitle(first) if first else "", sweep.notes, {}, charts, sweep_tables(sweep))


def warnings(run: RunResult) -> list[str]:
    """Returns the warnings about a run, the most important first."""
    messages = [f"{run.figures['lost']} accepted tasks never ended"] if run.figures["lost"] else []
    if limits := run.generator["limits"]:
        messages.append(
            "the generator was the bottleneck, so the figures are not the server's alone: use more --processes "
            f"({'; '.join(limits)})"
        )
    return [*messages, *run.notes]


def _subtitle(run: RunResult) -> str:
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
    context = {"title": title, "subtitle": subtitle, "notes": notes, "cards": cards, "charts": charts, "tables": tables}
    return environment.from_string(template).render(context)


def _svg(draw: Callable[[Axes, Any], None], data: Any) -> str:
    """Draws a chart. Returns a `data:` URL."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "gen-serve-bench", "font.size": 9}):
        figure = Figure(figsize=(5, 3), layout="constrained")
        canvas = FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.grid(alpha=0.3)
        draw(axes, data)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize="small", frameon=False)
        file = io.BytesIO()
        canvas.print_svg(file, metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"


def _time_distribution(axes: Axes, run: RunResult) -> None:
    for name, values in times([one for one in run.outcomes if not one.warm_up]).items():
        if values:
            axes.ecdf(values, label=TIMES[name])
    axes.set(title="share of requests that took no longer", xlabel="seconds", xscale="log", ylim=(0, 1))


def _request_scatter(axes: Axes, run: RunResult) -> None:
    for end, colour in _COLOURS.items():
        outcomes = [one for one in run.outcomes if ("late" if one.served and not one.good else one.end) == end]
        seconds = [(one.final or one.intended) - one.intended for one in outcomes]
        if outcomes:
            axes.plot([one.intended for one in outcomes], seconds, ".", markersize=3, color=colour, label=end)
    axes.set(title="each request", xlabel="scheduled start, s", ylabel="seconds to its end")


def _rate_histogram(axes: Axes, run: RunResult) -> None:
    submitted = [one.intended for one in run.outcomes]
    results = [one.final for one in run.outcomes if one.served and one.final is not None]
    length = max([1.0, *submitted, *results])
    for name, moments in (("requests", submitted), ("results", results)):
        axes.hist(
            moments, bins=40, range=(0, length), histtype="step", label=name, weights=[40 / length] * len(moments)
        )
    axes.set(title="per second", xlabel="seconds after the start")


def _curves(axes: Axes, data: tuple[Sequence[Mapping[str, Any]], str, Mapping[str, str]]) -> None:
    rates, title, names = data
    for name, label in names.items():
        points = [(each["rate"], each[name]) for each in rates if each[name] is not None]
        axes.plot([rate for rate, _ in points], [value for _, value in points], marker=".", label=label)
    axes.set(title=title, xlabel="requests per second")
    axes.set_ylim(bottom=0)
