from __future__ import annotations

import json
from functools import partial

from benchmarks import views
from benchmarks.interval import Interval
from benchmarks.peers.comparison import OWN, as_json, contenders, targets, turned
from benchmarks.peers.measuring import MIXED
from benchmarks.peers.plan import FULL, SMOKE
from benchmarks.peers.results import Row
from benchmarks.results import Result


def row(name: str, own: float, other: float, more_is_better: bool = True, unit: str = "") -> Row:
    sides = {OWN: Interval.of_median([own]), "loop": Interval.of_median([other])}
    return Row(name, unit, more_is_better, sides)


FIGURES = [
    row(f"pictures/s, {MIXED}", own=8, other=10),
    row("goodput at 1", own=6, other=3),
    row("lost by kill -9 of model", own=2, other=0, more_is_better=False, unit="%"),
    row("memory at rest", own=1500, other=400, more_is_better=False, unit="MiB"),
]


def test_another_side_is_first_in_each_round_and_all_are_in_every_one() -> None:
    sides = contenders(SMOKE)
    turns = [turned(sides, number) for number in range(len(sides))]
    assert [turn[0] for turn in turns] == sides
    assert all(set(turn) == set(sides) for turn in turns)
    assert turned(sides, len(sides)) == sides


def test_goals_are_told_against_the_best_other_one_and_losses_as_they_are() -> None:
    found = {target.name: target for target in targets(FIGURES)}
    assert found[f"pictures/s, {MIXED}, against the best other"].value == 0.8
    assert not found[f"pictures/s, {MIXED}, against the best other"].met
    assert found["goodput at 1, against the best other"].value == 2
    assert found["lost by kill -9 of model"].value == 2
    assert not found["lost by kill -9 of model"].met
    assert not any(name.startswith("memory") for name in found)


def test_figures_are_json_in_which_what_is_behind_comes_first() -> None:
    written = json.loads(json.dumps(as_json([], FIGURES)))
    assert [each["name"] for each in written["behind"]] == [
        "lost by kill -9 of model",
        "memory at rest",
        f"pictures/s, {MIXED}",
    ]
    assert written["behind"][0]["times"] is None  # infinitely, which JSON has no word for
    assert [each["name"] for each in written["rows"]][-1] == "goodput at 1"


def test_the_docs_say_it_in_the_same_order() -> None:
    figures = as_json([], FIGURES) | {"sides": ["loop", OWN]}
    made = partial(Result, "peers", "", "", False, 1.0, {}, {}, {}, targets=(), faults=())
    lines = views.peers({"peers": made(figures=figures)}).splitlines()
    assert lines[0] == f"|  | loop | {OWN} | behind |"
    assert lines[2].endswith("| 0 | 2 | ∞ |")
    assert lines[3] == "| memory at rest, MiB | 400 | 1,500 | 3.75x |"


def test_what_is_published_has_rounds_enough() -> None:
    assert FULL.rounds >= 5
    assert len(FULL.shapes) == 6
    assert FULL.one_shape in FULL.shapes
    assert FULL.loads == (0.5, 0.8, 1.0, 1.3)
