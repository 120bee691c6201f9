from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from training.evaluation import __main__ as command
from training.evaluation import report
from training.evaluation.__main__ import rows_for
from training.evaluation.exam import Row, examine
from training.evaluation.painters import IdealPainter, ModelPainter
from training.evaluation.pictures import ROWS, Question, ideal
from training.worlds.pictures.drawing import Pixels, drawn


class Mirror:
    """Draws everything the wrong way round, and refuses every third."""

    def paint(self, questions: Sequence[Question], first_seed: int) -> Iterator[Pixels | str]:
        for index, question in enumerate(questions):
            yield "too hard" if index % 3 == 2 else np.ascontiguousarray(ideal(question)[:, ::-1])


def small(checkpoint: str, *left_out: str) -> list[Row[Question, Pixels]]:
    return [row for row in rows_for(checkpoint) if row.name not in left_out]


@pytest.mark.parametrize("checkpoint", ["flux3", "fill", "canny"])
def test_a_perfect_painter_passes_every_row(checkpoint: str) -> None:
    results = examine(IdealPainter(), rows_for(checkpoint), 2)
    assert {result.name: (result.right, dict(result.faults)) for result in results if result.right < 1} == {}
    assert all(result.met is not False for result in results)
    assert len(report.sheet(results)) <= 600_000


def test_edits_are_summed_up() -> None:
    results = examine(IdealPainter(), [row for row in ROWS if row.group], 2)
    [together] = [result for result in results if result.name == "edits in all"]
    assert len(together.grades) == 2 * (len(results) - 1)


def test_an_edit_is_never_right_when_nothing_is_changed() -> None:
    class Copyist:
        def paint(self, questions: Sequence[Question], first_seed: int) -> Iterator[Pixels | str]:
            for question in questions:
                yield drawn(question.references[0], question.grid, question.size)

    results = examine(Copyist(), [row for row in ROWS if row.group], 4)
    assert {result.name: result.right for result in results if result.right} == {}


def test_wrong_answers_are_told_by_what_is_wrong() -> None:
    [result] = examine(Mirror(), small("fill", "erase", "extend"), 6)
    assert result.right < 1
    assert result.met is False
    assert result.faults["too hard"] == 2
    assert len(report.sheet([result])) > 0


def test_the_command_writes_figures_and_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_painter", lambda checkpoint, ideal: nullcontext(IdealPainter()))
    command.main(["fill", "canny", "--count", "1", "--verbose", "--folder", str(tmp_path)])
    known = json.loads((tmp_path / "evaluation.json").read_text())
    assert set(known) == {"fill", "canny"}
    assert known["fill"]["fill"]["right"] == 1
    told = (tmp_path / "evaluation.md").read_text()
    assert "`python -m training.evaluation fill canny`" in told
    assert "| fill | 1 | 100% | ≥ 80% | met |" in told
    assert (tmp_path / "fill.png").stat().st_size > 0


@pytest.mark.parametrize("arguments", [["--only", "erase"], ["--ideal"]])
def test_what_is_published_is_of_all_rows_and_of_models(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_painter", lambda checkpoint, ideal: nullcontext(IdealPainter()))
    monkeypatch.chdir(tmp_path)
    command.main(["fill", "--count", "1", *arguments])
    assert list(tmp_path.rglob("*")) == []


def test_rows_without_samples_are_graded_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_painter", lambda checkpoint, ideal: nullcontext(IdealPainter()))
    command.main(["flux", "--count", "1", "--only", "locked: counts", "--folder", str(tmp_path)])
    assert "locked: counts" in capsys.readouterr().out
    assert list(tmp_path.rglob("*.png")) == []


@pytest.mark.slow
def test_a_bundled_checkpoint_answers_through_the_engine() -> None:
    painter = ModelPainter("fill")
    try:
        [result] = examine(painter, small("fill", "erase", "extend"), 1)
    finally:
        painter.close()
    assert set(result.parts) >= {"appears", "untouched"}
    assert result.parts["untouched"] == 1
    assert not result.faults.keys() & {"the engine dropped it"}
