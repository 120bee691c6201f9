"""Command line of the benchmarks: `python -m benchmarks` runs them, tries them in seconds and publishes a run."""

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
Names = Annotated[list[str] | None, typer.Argument(help="Benchmarks to run (default: all).", show_default=False)]


@app.command("list")
def list_benchmarks() -> None:
    """List the benchmarks and what each measures."""
    for name in harness.MODULES:
        print(f"{name:10} {harness.benchmark(name).description}")


@app.command()
def run(names: Names = None) -> None:
    """Measure, and write the results into a new folder. Exits with 1 after a fault, such as a lost task."""
    _check(names)
    folder = harness.new_folder()
    print(f"results: {folder}")
    _measure(names, folder, smoke=False)


@app.command()
def smoke(names: Names = None) -> None:
    """Run every part of the benchmarks with tiny counts. The figures mean nothing and are deleted."""
    _check(names)
    with tempfile.TemporaryDirectory() as folder:
        _measure(names, Path(folder), smoke=True)


@app.command()
def publish(folder: Annotated[Path, typer.Argument(help="Folder of a run.", exists=True, file_okay=False)]) -> None:
    """Copy a run's results to benchmarks/results and update the tables in the docs."""
    try:
        names = harness.publish(folder)
    except ValueError as problem:
        sys.exit(f"error: {problem}")
    print(f"published {', '.join(names)}; updated documents: {', '.join(documents.write()) or 'none'}")


@app.command()
def path(
    names: Annotated[bool, typer.Option("--list", help="List the functions in the order of their calls.")] = False,
) -> None:
    """Count the functions and files that handle a request."""
    from benchmarks import call_path

    call_path.show(names=names)


def _check(names: list[str] | None) -> None:
    if unknown := set(names or []) - harness.MODULES.keys():
        sys.exit(f"error: no benchmark {', '.join(unknown)}; there are {', '.join(harness.MODULES)}")


def _measure(names: list[str] | None, folder: Path, *, smoke: bool) -> None:
    # Logs have no width of their own; wide tables must not wrap in them.
    console = Console(width=None if sys.stdout.isatty() else _LOGGED_WIDTH)
    failed: list[str] = []
    for name in names or harness.MODULES:
        console.rule(name)
        try:
            result = harness.benchmark(name).run(console, smoke)
        except Exception:
            console.print_exception()
            failed.append(name)
            continue
        result.write(folder)
        if result.report.faults:
            failed.append(name)
        if result.machine["busy"]:
            console.print("[yellow]other programs used the machine meanwhile; don't trust the figures")
    if failed:
        sys.exit(f"error: faults in {', '.join(failed)}")


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
