"""How a service bears a given load: `python -m benchmarks.load --start`, or `--base-url … --key …`.

Requests arrive at a fixed rate, in an open loop; each task is followed to its end. Measured, in seconds:

* `acknowledgement`: from the moment a request should have been sent to its task id
* `queue_wait`: from then to the start of work, `service`: from there to its end, by the server's `start_time` and
  `end_time`
* `total`: from the moment a request should have been sent to the first poll that shows the end; plain polling adds up
  to one interval

and goodput, the pictures per second that came within the objective. A rate above what the model can do only measures
how long it was kept up: waits then grow with `--duration`. A task that was accepted and has not ended within `--limit`
is lost; there must be none.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import Annotated, Any

import typer
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import load_plot, machine, open_loop, outcomes
from benchmarks.open_loop import Load
from benchmarks.outcomes import Outcome
from benchmarks.report import RESULTS, Report, Target
from benchmarks.service import ENDPOINT, UNLIMITED, Service
from serve_app.load.arrivals import Arrivals, schedule

BODY = {"prompt": "a small red star on a dark blue background", "width": 256, "height": 256, "steps": 4}


def measure(
    load: Load, arrivals: Arrivals, rate: float, duration: float, seed: int, slo: float, console: Console
) -> Report:
    facts = machine.facts()
    moments = schedule(arrivals, rate, duration, seed)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("tasks ended", total=len(moments))

        def on_end(_: Outcome) -> None:
            progress.advance(bar)

        tasks = uvloop.run(open_loop.run(load, moments, on_end))
    figures = outcomes.figures(tasks, duration, slo)
    load_plot.draw(tasks, slo, f"{load.path}: {rate:g}/s, {arrivals}", RESULTS / "load.png")
    console.print(_table(figures))
    return Report(
        name="load",
        machine=facts,
        settings={
            "path": load.path,
            "body": dict(load.body),
            "arrivals": arrivals,
            "rate_per_s": rate,
            "duration_s": duration,
            "seed": seed,
            "slo_s": slo,
            "limit_s": load.limit,
            "poll_every_s": load.poll_every,
            "poll_wait_s": load.wait,
        },
        figures=figures,
        targets=[
            Target("tasks lost", figures["lost"], 0),
            Target("tasks within the objective", figures["within_slo"], 0.99, at_least=True),
        ],
        faults=[f"{figures['lost']} accepted tasks never ended"] if figures["lost"] else [],
    )


def _table(figures: dict[str, Any]) -> Table:
    table = Table("seconds", title="load", title_justify="left")
    for heading in ("tasks", "p50", "p90", "p99", "max"):
        table.add_column(heading, justify="right")
    for name in ("acknowledgement", "queue_wait", "service", "total"):
        if spread := figures[name]:
            table.add_row(name, str(spread["n"]), *(f"{spread[q]:.3f}" for q in ("p50", "p90", "p99", "max")))
    counts = ("arrived", "accepted", "refused", "lost", "goodput_per_s", "polls_per_task", "poll_errors")
    table.caption = ", ".join(f"{name} {figures[name]}" for name in counts)
    return table


def main(
    base_url: Annotated[str, typer.Option(help="Address of a running service.")] = "http://127.0.0.1:8000",
    key: Annotated[str, typer.Option(help="API key.", envvar="GEN_KEY", show_default=False)] = "",
    start: Annotated[bool, typer.Option("--start", help="Start a service for this run instead.")] = False,
    path: Annotated[str, typer.Option(help="Endpoint, without /v1/.")] = ENDPOINT,
    body: Annotated[str, typer.Option(help="Request body, JSON.")] = json.dumps(BODY),
    rate: Annotated[float, typer.Option(min=0.001, help="Mean arrivals per second.")] = 2.0,
    arrivals: Annotated[str, typer.Option(help="poisson or constant.")] = "poisson",
    duration: Annotated[float, typer.Option(min=0.1, help="Seconds of arrivals.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Of the schedule.")] = 0,
    slo: Annotated[float, typer.Option(help="Objective: seconds from arrival to result.")] = 5.0,
    limit: Annotated[float, typer.Option(help="Seconds after which an accepted task counts as lost.")] = 300.0,
    poll_every: Annotated[float, typer.Option(min=0.01, help="Seconds between two polls of a task.")] = 0.1,
    wait: Annotated[float, typer.Option(min=0, max=60, help="Let polls wait at the server, if it knows how.")] = 0.0,
) -> None:
    """Open-loop load on one endpoint: waits, goodput, lost tasks."""
    if arrivals not in ("poisson", "constant"):
        raise typer.BadParameter("poisson or constant", param_hint="--arrivals")
    console = Console()
    with ExitStack() as stack:
        if start:
            console.print("starting a service")
            service = stack.enter_context(Service(UNLIMITED))
            base_url, key = service.base_url, service.key
        load = Load(base_url, key, path.removeprefix("/v1/"), json.loads(body), limit, poll_every, wait)
        report = measure(load, arrivals, rate, duration, seed, slo, console)
    sys.exit(report.finish(console))


if __name__ == "__main__":
    typer.run(main)
