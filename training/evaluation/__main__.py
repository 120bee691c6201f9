"""Asks bundled models for pictures that they never saw, and grades them.

    python -m training.evaluation flux3 flux2klein

The results go to docs/bundled: figures of all checkpoints in evaluation.json and evaluation.md, samples of each one in
a picture of its name. Run it at the repository's root.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import Final

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from training.evaluation import report, sheets
from training.evaluation.exam import Result, examine, rows_for
from training.evaluation.painters import IdealPainter, ModelPainter
from training.evaluation.question import Row
from training.evaluation.settings import REQUESTS

_FOLDER: Final = Path("docs/bundled")


def main(arguments: list[str] | None = None) -> None:
    chosen = _arguments(arguments)
    torch.set_num_threads(chosen.threads)
    console = Console()
    for checkpoint in chosen.checkpoints:
        rows = [row for row in rows_for(checkpoint) if not chosen.only or chosen.only in row.name]
        if not rows:
            raise SystemExit(f"{checkpoint} has no row that is called {chosen.only}")
        results = _examined(checkpoint, rows, chosen, console)
        console.print(report.table(checkpoint, results))
        if chosen.verbose:
            console.print(report.faults(results))
        if not chosen.only and not chosen.ideal:
            known = report.updated(chosen.folder / "evaluation.json", checkpoint, results)
            (chosen.folder / "evaluation.md").write_text(report.markdown(known))
        if not chosen.ideal or chosen.folder != _FOLDER:
            chosen.folder.mkdir(parents=True, exist_ok=True)
            (chosen.folder / f"{checkpoint}.png").write_bytes(sheets.sheet(results))


def _examined(checkpoint: str, rows: list[Row], chosen: argparse.Namespace, console: Console) -> list[Result]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task(checkpoint, total=sum(row.pictures(chosen.count) for row in rows))

        def advance(name: str) -> None:
            bars.update(bar, advance=1, description=f"{checkpoint}: {name}")

        if chosen.ideal:
            return examine(IdealPainter(), rows, chosen.count, advance)
        with closing(ModelPainter(checkpoint)) as painter:
            return examine(painter, rows, chosen.count, advance)


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+", choices=list(REQUESTS), metavar=f"{{{','.join(REQUESTS)}}}")
    parser.add_argument("--count", type=int, default=100, help="pictures per row")
    parser.add_argument("--only", help="rows whose names contain this; evaluation.json and .md stay as they are")
    parser.add_argument(
        "--ideal", action="store_true", help="the truth in place of a model: what the rows give at best"
    )
    parser.add_argument("--verbose", action="store_true", help="list what is wrong, by class")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="where results go")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
