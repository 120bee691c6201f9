from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from benchmarks.interval import Interval
from benchmarks.peers.asked import Asked
from benchmarks.peers.measuring import MIXED, ONE_SHAPE, Killed, Measured, Solo
from benchmarks.peers.plan import SMOKE
from benchmarks.peers.request import Request
from benchmarks.peers.results import Round, Row, behind_first, goodput, rows
from benchmarks.peers.table import draw, table

SHAPE = (64, 64, 4)
SOLO = Solo({SHAPE: 0.1}, rate=10.0)
OWN = "own"


def row(name: str, own: float, other: float, more_is_better: bool = True) -> Row:
    sides = {"own": Interval.of_median([own]), "other": Interval.of_median([other])}
    return Row(name, "", more_is_better, sides)


def asked(jpeg: bytes, total: float) -> Asked:
    return Asked(Request("", *SHAPE, seed=1), scheduled=100.0, done=100.0 + total, jpeg=jpeg, facts={"started": 100.25})


def picture() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", SHAPE[:2]).save(file, "jpeg")
    return file.getvalue()


def measured(rate: float, lost: int | None = None) -> Measured:
    made = Measured(start_s=3.0, memory_mib=100.0, pictures_per_s={ONE_SHAPE: 2 * rate, MIXED: rate})
    made.open_loop = {load: [asked(picture(), 0.2), asked(picture(), 0.6)] for load in SMOKE.loads}
    made.handoffs = [asked(picture(), 0.2)]
    if lost is not None:
        made.killed = {"model": Killed(sent=8, refused=0, lost=lost, told=0, longest_s=1.0)}
    return made


def test_behind_is_how_many_times_better_the_best_other_one_is() -> None:
    assert row("rate", own=5, other=10).behind(OWN) == 2
    assert row("rate", own=10, other=5).behind(OWN) == 0.5
    assert row("wait", own=5, other=10, more_is_better=False).behind(OWN) == 0.5
    assert row("wait", own=10, other=5, more_is_better=False).behind(OWN) == 2
    assert row("lost", own=1, other=0, more_is_better=False).behind(OWN) == float("inf")
    assert row("lost", own=0, other=0, more_is_better=False).behind(OWN) == 1


def test_a_figure_that_nobody_else_has_is_not_behind() -> None:
    assert Row("", "", True, {"own": Interval.of_median([1])}).behind(OWN) is None
    assert Row("", "", True, {"other": Interval.of_median([1])}).behind(OWN) is None


def test_where_the_service_is_behind_comes_first_and_the_worst_of_it_before_all() -> None:
    found = [row("ahead", 2, 1), row("behind", 1, 2), row("level", 1, 1), row("far behind", 1, 9)]
    assert [one.name for one, _ in behind_first(found, OWN)] == ["far behind", "behind", "ahead", "level"]


def test_a_picture_is_good_within_its_own_shapes_limit_only() -> None:
    run = [asked(picture(), 0.2), asked(picture(), 0.6), asked(b"", 0.1)]
    assert goodput(run, SOLO, within=5.0, seconds=2.0) == 0.5


def test_rows_are_medians_over_rounds_and_leave_out_who_has_no_such_figure() -> None:
    rounds = [
        Round(SOLO, {"loop": measured(1.0), OWN: measured(rate, lost=lost)})
        for rate, lost in ((2.0, 0), (3.0, 4), (9.0, 2))
    ]
    found = {one.name: one for one in rows(rounds, SMOKE)}
    assert found["pictures/s, mixed shapes"].sides[OWN].middle == 3.0
    assert found["pictures/s, one shape"].sides["loop"].middle == 2.0
    assert found["idle, request to the model's start, p50"].sides[OWN].middle == pytest.approx(250)
    assert set(found["lost by kill -9 of model"].sides) == {OWN}
    assert found["lost by kill -9 of model"].sides[OWN].middle == 25
    assert "CPU of a poll" not in found


def test_the_table_shows_where_the_service_is_behind_first(tmp_path) -> None:
    shown = io.StringIO()
    found = [row("pictures/s, one shape", 5, 1), row("goodput at 0.8", 1, 3)]
    Console(file=shown, width=100).print(table(found, ["own", "other"], OWN, rounds=5))
    text = shown.getvalue()
    assert text.index("goodput at 0.8") < text.index("pictures/s, one shape")
    assert "3.00x" in text
    draw(found, ["own", "other"], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 0


def test_rows_are_json() -> None:
    assert json.loads(json.dumps(row("rate", 5, 10).as_json()))["sides"]["own"]["median"] == 5
