from __future__ import annotations

import numpy as np
import pytest

from training.worlds.pictures.drawing import drawn
from training.worlds.pictures.judge import judge
from training.worlds.pictures.scene import Background, Grid, Scene, Thing
from training.worlds.pictures.wanted import WantedThing, wanted

GRID: Grid = (8, 8)
RED_STAR = Thing("star", "red", place="left")


def faults(text: str, *things: Thing, background: str = "white") -> tuple[str, ...]:
    scene = Scene(things, Background(background))
    verdict = judge(np.asarray(drawn(scene, GRID, (256, 256))), GRID, scene)
    return wanted(text).faults(verdict.seen, verdict.backdrop, GRID)


@pytest.mark.parametrize(
    "text", ["red star / white", "any star / any", "red any @ left / white", "medium red star / any"]
)
def test_what_is_left_open_may_be_anything(text: str) -> None:
    assert faults(text, RED_STAR) == ()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("blue star / white", "colour: red, not blue"),
        ("red heart / any", "shape: star, not heart"),
        ("red star @ right / any", "place: left, not right"),
        ("large red star / any", "size: medium, not large"),
        ("red star / black", "background: plain white"),
        ("2 red star / any", "count: 1, not 2"),
        ("nothing / white", "count: 1, not 0"),
    ],
)
def test_what_is_said_must_be_so(text: str, fault: str) -> None:
    assert faults(text, RED_STAR) == (fault,)


def test_things_are_met_in_any_order() -> None:
    heart = Thing("heart", "blue", place="right")
    assert faults("blue heart + red star / white", RED_STAR, heart) == ()
    assert faults("red heart + blue star / white", RED_STAR, heart) != ()


def test_counts_patterns_and_names_of_two_words() -> None:
    told = wanted("2 small dark green ring + any moon @ top left / gradient light blue red across")
    assert told.things == (
        *[WantedThing("ring", "dark green", "small")] * 2,
        WantedThing("moon", None, None, "top left"),
    )
    assert told.background == Background("light blue", "horizontal", "red")


@pytest.mark.parametrize(
    "text",
    [
        "red star",
        "red / white",
        "crimson star / white",
        "red star @ above / white",
        "red star / navy",
        "red star / stripes red",
    ],
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        wanted(text)


@pytest.mark.parametrize("text", ["5 red star / any", "white star + black star / any", "any any + any any / white"])
def test_it_can_be_drawn(text: str) -> None:
    scene = wanted(text).scene()
    assert scene.fits(GRID)
    assert faults(text, *scene.things, background=scene.background.colour) == ()
