"""`python -m benchmarks`: run some or all, try all in seconds, publish a run."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from benchmarks import documents, machine, results, suite
from benchmarks.benchmark import Benchmark
from benchmarks.results import PUBLISHED, Result

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
_LOGGED_WIDTH: Final = 160
Names = Annotated[list[str] | None, typer.Argument(help="Which; all if none is named.", show_default=False)]


@app.command("list")
def listed() -> None:
    """All benchmarks, and what each measures."""
    for name in suite.MODULES:
        print(f"{name:10} {suite.benchmark(name).what}")


@app.command()
def run(names: Names = None) -> None:
    """Measure, into a folder by date and machine. Exit code 1 when what must never happen did."""
    chosen, console = _chosen(names), _console()
    folder = results.new_folder()
    wrong = [each.name for each in chosen if not _measured(each, folder, console, smoke=False)]
    console.print(f"figures and plots: {folder}")
    _end(wrong)


@app.command()
def smoke(names: Names = None) -> None:
    """Every part of every benchmark with tiny counts; the figures mean nothing and are thrown away."""
    chosen, console = _chosen(names), _console()
    with tempfile.TemporaryDirectory() as folder:
        _end([each.name for each in chosen if not _measured(each, Path(folder), console, smoke=True)])


@app.command()
def publish(folder: Annotated[Path, typer.Argument(help="Of a run.", exists=True, file_okay=False)]) -> None:
    """Copy a run's figures and plots to benchmarks/results, and write the tables in the docs anew."""
    try:
        names = results.publish(folder, PUBLISHED)
    except ValueError as problem:
        sys.exit(f"error: {problem}")
    print(f"published {', '.join(names)}; written: {', '.join(documents.write(PUBLISHED)) or 'no document changed'}")


def _console() -> Console:
    """As wide as a table of many columns where nobody watches: logs are read later."""
    return Console(width=None if sys.stdout.isatty() else _LOGGED_WIDTH)


def _chosen(names: list[str] | None) -> list[Benchmark[Any]]:
    try:
        return [suite.benchmark(name) for name in names or suite.MODULES]
    except ValueError as problem:
        sys.exit(f"error: {problem}")


def _measured(benchmark: Benchmark[Any], folder: Path, console: Console, *, smoke: bool) -> bool:
    """Whether nothing happened that must not."""
    console.rule(benchmark.name)
    facts, watch, began = machine.facts(), machine.Watch(), time.perf_counter()
    try:
        plan, report = benchmark.run(console, smoke)
    except Exception:
        console.print_exception()  # the others go on
        return False
    result = Result.of(benchmark, plan, report, facts, watch.end(), time.perf_counter() - began)
    result.write(folder)
    if report.draw:
        report.draw(folder / f"{benchmark.name}.png")
    report.show(console, benchmark.name)
    if result.others["busy"]:
        console.print("[yellow]others used the machine meanwhile; don't trust the figures")
    return not report.faults


def _end(wrong: list[str]) -> None:
    if wrong:
        sys.exit(f"error: what must never happen did, in {', '.join(wrong)}")


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
