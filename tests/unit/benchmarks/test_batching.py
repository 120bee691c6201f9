from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.batching import BATCHES, STEPS, Cell, Run, draw, learned_cap, report, table


def run(step: float, encode: float = 0.0, finish: float = 0.0) -> Run:
    return Run(encode, (step,) * STEPS, finish)


def cell(*rounds: dict[int, float], family: str = "flux", size: int = 64) -> Cell:
    """From seconds per step by batch."""
    return Cell(family, size, [{batch: run(step) for batch, step in one.items()} for one in rounds])


FAMILIES, SIZES = ("flux3", "flux"), (64, 256)
GAINS = {1: 0.010, 2: 0.016, 4: 0.028, 8: 0.050}
STOPS_AT_TWO = {1: 0.010, 2: 0.016, 4: 0.032, 8: 0.040}
NEVER = {1: 0.010, 2: 0.020, 4: 0.040, 8: 0.080}


@pytest.mark.parametrize(("seconds", "cap"), [(GAINS, 8), (STOPS_AT_TWO, 2), (NEVER, 1)])
def test_the_cap_is_where_doubling_stops_to_pay(seconds: dict[int, float], cap: int) -> None:
    assert learned_cap({batch: [step] * STEPS for batch, step in seconds.items()}) == cap


def test_rates_come_from_medians() -> None:
    slow = {batch: 100 * step for batch, step in GAINS.items()}
    figures = cell(GAINS, slow, GAINS).figures()
    assert figures["rounds"] == 3
    assert list(figures["batches"]) == [str(batch) for batch in BATCHES]
    assert figures["batches"]["8"] == {
        "step_ms": pytest.approx(50),
        "denoising_pictures_per_s": pytest.approx(8 / (STEPS * 0.05)),
        "whole_pictures_per_s": pytest.approx(8 / (STEPS * 0.05)),
    }


def test_a_whole_picture_is_encoded_and_finished_too() -> None:
    figures = Cell("flux", 64, [{1: run(0.1, encode=0.2, finish=0.4)}]).figures()
    assert figures["batches"]["1"]["denoising_pictures_per_s"] == pytest.approx(2.5)
    assert figures["batches"]["1"]["whole_pictures_per_s"] == pytest.approx(1)


def test_the_cap_of_most_rounds_stands_beside_the_best_batch() -> None:
    figures = cell(STOPS_AT_TWO, GAINS, STOPS_AT_TWO).figures()
    assert figures["learned_caps"] == [2, 8, 2]
    assert figures["learned_cap"] == 2
    assert figures["best_batch"] == 8
    assert figures["kept_at_learned_cap"] == pytest.approx((2 / 0.016) / (8 / 0.040))


def test_the_smaller_of_two_caps_as_frequent() -> None:
    assert cell(GAINS, NEVER).figures()["learned_cap"] == 1


def everything() -> list[dict[str, Any]]:
    return [
        cell(seconds, family=family, size=size).figures()
        for family in FAMILIES
        for size, seconds in zip(SIZES, (GAINS, STOPS_AT_TWO), strict=True)
    ]


def test_what_is_kept_at_the_learned_cap_is_a_goal() -> None:
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
