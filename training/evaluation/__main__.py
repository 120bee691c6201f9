"""Asks bundled models for pictures and clips that they never saw, and grades them.

    python -m training.evaluation flux3 ltx2

The results go to docs/bundled: figures of all checkpoints in evaluation.json and evaluation.md, samples of each one in
a picture of its name. Run it at the repository's root.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, Final

import torch
from tqdm import tqdm

from training.evaluation import clips, pictures, report
from training.evaluation.exam import Result, Row, examine
from training.evaluation.painters import REQUESTS, IdealPainter, ModelPainter

_FOLDER: Final = Path("docs/bundled")
_ROWS: Final[tuple[Row[Any, Any], ...]] = (*pictures.ROWS, *clips.ROWS)
_CHECKPOINTS: Final = (*REQUESTS, "ltx2")


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _arguments(arguments)
    torch.set_num_threads(1)
    for checkpoint in chosen.checkpoints:
        rows = [row for row in rows_for(checkpoint) if not chosen.only or chosen.only in row.name]
        if not rows:
            raise SystemExit(f"{checkpoint} has no row that is called {chosen.only}")
        results = _examined(checkpoint, rows, chosen)
        print("\n".join(report.table({result.name: result.as_json() for result in results})))
        if chosen.verbose:
            for result in results:
                print("\n".join(f"{result.name}: {count} x {fault}" for fault, count in result.faults.most_common()))
        published = chosen.folder == _FOLDER
        if not (chosen.only or chosen.ideal):
            known = report.updated(chosen.folder / "evaluation.json", checkpoint, results)
            (chosen.folder / "evaluation.md").write_text(report.markdown(known))
        if any(result.samples for result in results) and not (published and (chosen.only or chosen.ideal)):
            chosen.folder.mkdir(parents=True, exist_ok=True)
            (chosen.folder / f"{checkpoint}.png").write_bytes(report.sheet(results))


def rows_for(checkpoint: str) -> list[Row[Any, Any]]:
    return [row for row in _ROWS if checkpoint in row.checkpoints]


def _examined(checkpoint: str, rows: Sequence[Row[Any, Any]], chosen: argparse.Namespace) -> list[Result]:
    count, painter = chosen.count or 100, _painter(checkpoint, chosen.ideal)
    if checkpoint == "ltx2":
        count = chosen.count or 35
    with painter as answering, tqdm(total=sum(row.count(count) for row in rows)) as bar:

        def advance(name: str) -> None:
            bar.set_description(f"{checkpoint}: {name}", refresh=False)
            bar.update()

        return examine(answering, rows, count, advance)


def _painter(checkpoint: str, ideal: bool) -> Any:
    if checkpoint == "ltx2":
        return nullcontext(clips.IdealClips() if ideal else clips.ModelClips())
    return nullcontext(IdealPainter()) if ideal else closing(ModelPainter(checkpoint))


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_argument
    option("checkpoints", nargs="+", choices=_CHECKPOINTS, metavar=f"{{{','.join(_CHECKPOINTS)}}}")
    option("--count", type=int, help="answers per row; 100 if nothing else is said, of clips 35")
    option("--only", help=f"rows whose names contain this; what is in {_FOLDER} stays as it is")
    option("--ideal", action="store_true", help="the truth in place of a model: what the rows give at best")
    option("--verbose", action="store_true", help="list what is wrong, by class")
    option("--folder", type=Path, default=_FOLDER, help="where results go")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
