"""`python -m benchmarks`: run some or all, try all in seconds, publish a run."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from benchmarks import documents, harness

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
_LOGGED_WIDTH: Final = 160
Names = Annotated[list[str] | None, typer.Argument(help="Which; all if none is named.", show_default=False)]


@app.command("list")
def list_benchmarks() -> None:
    """All benchmarks, and what each measures."""
    for name in harness.MODULES:
        print(f"{name:10} {harness.benchmark(name).what}")


@app.command()
def run(names: Names = None) -> None:
    """Measure, into a folder by date and machine. Exit code 1 when what must never happen did."""
    _check(names)
    folder = harness.new_folder()
    print(f"figures: {folder}")
    _measure(names, folder, smoke=False)


@app.command()
def smoke(names: Names = None) -> None:
    """Every part of every benchmark with tiny counts; the figures mean nothing and are thrown away."""
    _check(names)
    with tempfile.TemporaryDirectory() as folder:
        _measure(names, Path(folder), smoke=True)


@app.command()
def publish(folder: Annotated[Path, typer.Argument(help="Of a run.", exists=True, file_okay=False)]) -> None:
    """Copy a run's results to benchmarks/results, and write the tables in the docs anew."""
    try:
        names = harness.publish(folder)
    except ValueError as problem:
        sys.exit(f"error: {problem}")
    print(f"published {', '.join(names)}; written: {', '.join(documents.write()) or 'no document changed'}")


@app.command()
def path(
    names: Annotated[bool, typer.Option("--list", help="Show the functions in the order of their calls.")] = False,
) -> None:
    """Count the functions and files that a request passes."""
    from benchmarks import call_path

    call_path.show(names=names)


def _check(names: list[str] | None) -> None:
    if unknown := set(names or []) - harness.MODULES.keys():
        sys.exit(f"error: no benchmark {', '.join(unknown)}; there are {', '.join(harness.MODULES)}")


def _measure(names: list[str] | None, folder: Path, *, smoke: bool) -> None:
    # As wide as a table of many columns where nobody watches: logs are read later.
    console = Console(width=None if sys.stdout.isatty() else _LOGGED_WIDTH)
    wrong: list[str] = []
    for name in names or harness.MODULES:
        console.rule(name)
        try:
            result = harness.benchmark(name).run(console, smoke)
        except Exception:
            console.print_exception()  # the others go on
            wrong.append(name)
            continue
        result.write(folder)
        if result.report.faults:
            wrong.append(name)
        if result.machine["busy"]:
            console.print("[yellow]others used the machine meanwhile; don't trust the figures")
    if wrong:
        sys.exit(f"error: what must never happen did, in {', '.join(wrong)}")


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
