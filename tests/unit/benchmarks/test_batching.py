from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.batching import BATCHES, STEPS, Cell, Run, draw, learned_batches, report, table


def run(step: float, encode: float = 0.0, finish: float = 0.0) -> Run:
    return Run(encode, (step,) * STEPS, finish)


def cell(*rounds: dict[int, float], family: str = "flux", size: int = 64) -> Cell:
    """From seconds per step by batch."""
    return Cell(family, size, TOKENS[size], [{batch: run(step) for batch, step in one.items()} for one in rounds])


FAMILIES, SIZES = ("flux3", "flux"), (64, 256)
TOKENS = {64: 96, 256: 336}
GAINS = {1: 0.010, 2: 0.016, 4: 0.028, 8: 0.050}
STOPS_AT_TWO = {1: 0.010, 2: 0.016, 4: 0.032, 8: 0.040}
NEVER = {1: 0.010, 2: 0.020, 4: 0.040, 8: 0.080}


def test_the_batch_that_is_learned_follows_from_all_sizes() -> None:
    small, large = ({batch: 0.002 + per_picture * batch for batch in BATCHES} for per_picture in (0.002, 0.007))
    assert learned_batches([cell(small, small), cell(large, large, size=256)]) == [8, 8]
    assert learned_batches([cell(NEVER, NEVER, NEVER)]) == [1]


def test_rates_come_from_medians() -> None:
    slow = {batch: 100 * step for batch, step in GAINS.items()}
    figures = cell(GAINS, slow, GAINS).figures(8)
    assert figures["rounds"] == 3
    assert list(figures["batches"]) == [str(batch) for batch in BATCHES]
    assert figures["batches"]["8"] == {
        "step_ms": pytest.approx(50),
        "denoising_pictures_per_s": pytest.approx(8 / (STEPS * 0.05)),
        "whole_pictures_per_s": pytest.approx(8 / (STEPS * 0.05)),
    }


def test_a_whole_picture_is_encoded_and_finished_too() -> None:
    figures = Cell("flux", 64, 96, [{1: run(0.1, encode=0.2, finish=0.4)}]).figures(1)
    assert figures["batches"]["1"]["denoising_pictures_per_s"] == pytest.approx(2.5)
    assert figures["batches"]["1"]["whole_pictures_per_s"] == pytest.approx(1)


@pytest.mark.parametrize(("learned", "step_s"), [(2, 0.016), (6, 0.036), (8, 0.040)])
def test_what_is_kept_is_a_share_of_the_best_rate(learned: int, step_s: float) -> None:
    figures = cell(STOPS_AT_TWO).figures(learned)
    assert (figures["best_batch"], figures["learned_batch"]) == (8, learned)
    assert figures["kept_at_learned_batch"] == pytest.approx((learned / step_s) / (8 / 0.040), abs=1e-3)


def everything() -> list[dict[str, Any]]:
    return [
        cell(seconds, family=family, size=size).figures(learned)
        for family in FAMILIES
        for size, seconds, learned in zip(SIZES, (GAINS, STOPS_AT_TWO), (8, 2), strict=True)
    ]


def test_what_is_kept_at_the_learned_batch_is_a_goal() -> None:
    found = report(everything())
    assert [target.value for target in found.targets] == [pytest.approx((1 + 0.625) / 2, abs=1e-3), 0.625]
    assert [target.met for target in found.targets] == [False, False]
    assert [(one["family"], one["size"]) for one in found.figures["cells"]] == [
        (family, size) for family in FAMILIES for size in SIZES
    ]


def test_figures_can_be_shown_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=120).print(table(everything()[:2]))
    shown = capsys.readouterr().out
    assert "flux3" in shown
    assert "0.62" in shown
    panels = draw(everything(), tmp_path / "plots" / "batching.png").axes
    assert [panel.get_title() for panel in panels] == list(FAMILIES)
    # For each size a line and a ring.
    assert [len(panel.lines) for panel in panels] == [2 * len(SIZES)] * len(FAMILIES)
    assert (tmp_path / "plots" / "batching.png").read_bytes().startswith(b"\x89PNG")
