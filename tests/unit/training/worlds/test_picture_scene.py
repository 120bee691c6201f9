from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest

from training.worlds import palette, shapes
from training.worlds.pictures.scene import Background, Box, Grid, Scene, Thing, random_scene, settled
from training.worlds.vocabulary import PLACES, SIZES

WHITE = Background("white")


def test_there_is_as_much_as_promised() -> None:
    assert (len(palette.NAMES), len(shapes.NAMES), len(SIZES), len(PLACES)) == (15, 10, 3, 9)


@pytest.mark.parametrize("grid", [(8, 8), (8, 14), (12, 8)])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("place", PLACES)
def test_a_thing_is_where_its_place_says_and_at_a_corner_of_tokens(grid: Grid, size: str, place: str) -> None:
    x, y, radius = Thing("star", "red", size, place).circle(grid)
    for at, side, way in zip((x, y), reversed(grid), PLACES[place], strict=True):
        assert math.copysign(1, at) * way >= 0
        assert (at != 0) == (way != 0)
        assert abs(at) + radius <= side / 2
        assert at == pytest.approx(round(at))


@pytest.mark.parametrize("box", [(100, 200, 600, 900), (0, 0, 1000, 1000), (333, 420, 700, 777), (10, 10, 60, 90)])
def test_a_thing_fits_its_box_whatever_the_canvas(box: Box) -> None:
    for grid in ((8, 8), (8, 14), (16, 8)):
        x, y, radius = Thing("circle", "red", box=box).circle(grid)
        top, left, bottom, right = ((edge / 1000 - 0.5) * side for edge, side in zip(box, (*grid, *grid), strict=True))
        assert top - 1e-9 <= y - radius <= y + radius <= bottom + 1e-9
        assert left - 1e-9 <= x - radius <= x + radius <= right + 1e-9


def test_a_gradient_hides_what_has_the_colour_of_its_middle() -> None:
    assert Background("white", "vertical", "black").hides("gray")
    assert not Background("white", "striped", "black").hides("gray")
    assert not Background("white", "vertical", "black").hides("red")


def test_things_neither_touch_nor_vanish() -> None:
    left, center = Thing("star", "red", "large", "left"), Thing("ring", "blue", "large")
    assert not Scene((left, center), WHITE).fits((8, 8))
    assert Scene((left, replace(center, place="right")), WHITE).fits((8, 12))
    assert not Scene((Thing("star", "white"),), WHITE).fits((8, 8))
    assert not Scene((Thing("star", "red"),), Background("blue", "striped", "red")).fits((8, 8))


def test_a_tenth_is_held_out_and_random_scenes_keep_to_it() -> None:
    random = Random(0)
    held = [
        Scene((Thing(shape, colour),), Background(behind)).held_out
        for shape in shapes.NAMES
        for colour in palette.NAMES
        for behind in palette.NAMES
    ]
    assert 0.07 < sum(held) / len(held) < 0.15
    for wanted in (False, True):
        assert all(random_scene(random, (8, 8), 1, wanted).held_out is wanted for _ in range(20))


def test_random_scenes_fit_and_have_different_shapes() -> None:
    random = Random(1)
    for things in range(4):
        for _ in range(20):
            scene = random_scene(random, (8, 14), things)
            assert scene.fits((8, 14))
            assert len({thing.shape for thing in scene.things}) == things


def test_seeds_differ_a_little() -> None:
    thing = Thing("star", "red")
    first, second = settled(thing, Random(1)), settled(thing, Random(2))
    assert first != second
    assert replace(first, shift=(0.0, 0.0), shade=0.0) == thing
