from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from random import Random

import cv2
import numpy as np
import pytest

from training.lessons.edits import EDITS
from training.lessons.pictures import change, lay_out
from training.worlds import shapes
from training.worlds.pictures.drawing import draw
from training.worlds.pictures.judge import Pixels, judge, judge_edit
from training.worlds.pictures.scene import Background, Grid, Scene, Thing, random_scene

PICTURES = 44
SQUARE = (8, 8)
GRIDS = (SQUARE, (8, 10), (10, 8), (8, 12), (12, 8), (8, 14), (14, 8), (8, 16), (16, 8), (8, 18), (18, 8))
STAR = Scene((Thing("star", "red", place="top left"),), Background("white"))


def drawn(scene: Scene, grid: Grid = SQUARE) -> Pixels:
    picture, _ = draw([scene], grid, 16)
    return np.asarray(((picture[0].permute(1, 2, 0) + 1) * 127.5).round().byte().numpy())


def softened(picture: Pixels) -> Pixels:
    return np.asarray(cv2.GaussianBlur(picture, (0, 0), 1), np.uint8)


def noisy(picture: Pixels) -> Pixels:
    noise = np.random.default_rng(picture.shape[0]).normal(0, 8, picture.shape)
    return np.clip(picture + noise, 0, 255).astype(np.uint8)


def compressed(picture: Pixels) -> Pixels:
    data = cv2.imencode(".jpeg", picture, [cv2.IMWRITE_JPEG_QUALITY, 85])[1]
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)


def enlarged(picture: Pixels) -> Pixels:
    return np.asarray(cv2.resize(picture, (1024, 1024), interpolation=cv2.INTER_LANCZOS4), np.uint8)


def untouched(picture: Pixels) -> Pixels:
    return picture


@pytest.mark.parametrize(
    ("handled", "missed"), [(untouched, 0), (softened, 1), (noisy, 1), (compressed, 1), (enlarged, 1)]
)
def test_what_was_drawn_is_right(handled: Callable[[Pixels], Pixels], missed: int) -> None:
    random = Random(handled.__name__)
    right = 0
    for index in range(PICTURES):
        grid = GRIDS[index % len(GRIDS)]
        scene = random_scene(random, grid, 1 + index % 3, plain=0.4)
        right += judge(handled(drawn(scene, grid)), grid, scene).right
    assert right >= PICTURES - missed


def test_things_are_inside_their_boxes() -> None:
    random = Random(1)
    scenes = [(lay_out(random, grid).target, grid) for grid in GRIDS for _ in range(3)]
    assert sum(judge(drawn(scene, grid), grid, scene).right for scene, grid in scenes) >= len(scenes) - 1
    scene = Scene((Thing("heart", "blue", box=(100, 100, 500, 500)),), Background("pink"))
    beside = Scene((Thing("heart", "blue", box=(100, 400, 500, 800)),), Background("pink"))
    assert not judge(drawn(beside), SQUARE, scene).parts["place"]


def test_an_empty_scene_is_right_only_when_empty() -> None:
    nothing = Scene((), Background("red", "striped", "white"))
    assert judge(drawn(nothing), SQUARE, nothing).right
    assert not judge(drawn(replace(nothing, things=(Thing("ring", "black"),))), SQUARE, nothing).count


@pytest.mark.parametrize(("wanted", "got"), list(permutations(shapes.NAMES, 2)))
def test_no_shape_passes_for_another(wanted: str, got: str) -> None:
    picture = drawn(Scene((Thing(got, "yellow", size="small"),), Background("blue", "vertical", "green")))
    expected = Scene((Thing(wanted, "yellow", size="small"),), Background("blue", "vertical", "green"))
    verdict = judge(softened(picture), SQUARE, expected)
    parts = verdict.parts
    assert (parts["shape"], parts["colour"], parts["background"], verdict.right) == (False, True, True, False)


@pytest.mark.parametrize(("wanted", "got"), [("red", "orange"), ("blue", "purple"), ("black", "dark green")])
def test_no_colour_passes_for_another(wanted: str, got: str) -> None:
    verdict = judge(
        drawn(Scene((Thing("cross", got),), Background("cyan"))),
        SQUARE,
        Scene((Thing("cross", wanted),), Background("cyan")),
    )
    assert (verdict.parts["shape"], verdict.parts["colour"]) == (True, False)
    assert verdict.faults() == (f"colour: {got}, not {wanted}",)


def test_a_mirrored_place_and_another_size_are_wrong() -> None:
    mirrored = judge(np.ascontiguousarray(drawn(STAR)[:, ::-1]), SQUARE, STAR).parts
    assert (mirrored["place"], mirrored["shape"], mirrored["colour"]) == (False, True, True)
    larger = STAR.with_thing(0, replace(STAR.things[0], size="large"))
    assert not judge(drawn(larger), SQUARE, STAR).parts["size"]


def test_a_star_drawn_as_a_hole_is_wrong() -> None:
    hole = Scene((Thing("star", "white", place="top left"),), Background("red"))
    verdict = judge(drawn(hole), SQUARE, STAR)
    assert not verdict.background
    assert not verdict.parts["colour"]


def test_missing_and_further_things_are_wrong() -> None:
    two = replace(STAR, things=(*STAR.things, Thing("moon", "blue", place="bottom right", size="small")))
    missing = judge(drawn(STAR), SQUARE, two)
    assert (missing.count, missing.right, missing.things[1].seen) == (False, False, None)
    further = judge(drawn(two), SQUARE, STAR)
    assert (further.count, further.right, further.things[0].right) == (False, False, True)


def test_a_ragged_blob_of_the_right_area_is_wrong() -> None:
    for shape in shapes.NAMES:
        scene = Scene((Thing(shape, "green", size="medium"),), Background("white"))
        picture, cover = (part[0] for part in draw([scene], SQUARE, 16))
        # Level lines of a blurred silhouette with coarse noise: about the area, not the outline.
        lumps = np.random.default_rng(3).normal(size=(16, 16)).astype(np.float32)
        field = cv2.GaussianBlur(cover[0].numpy(), (0, 0), 5) + 0.3 * cv2.resize(
            lumps, (128, 128), interpolation=cv2.INTER_CUBIC
        )
        field[cv2.dilate(cover[0].numpy(), np.ones((25, 25))) == 0] = 0
        blob = field > np.sort(field.ravel())[-int(cover.sum())]
        ragged = drawn(replace(scene, things=()))
        ragged[blob] = drawn(scene)[cover[0].numpy() == 1][0]
        assert not judge(softened(ragged), SQUARE, scene).parts["clean"], shape
        assert picture.shape == (3, 128, 128)


@pytest.mark.parametrize("colour", ["red", "blue", "yellow"])
def test_grey_rims_are_wrong(colour: str) -> None:
    scene = Scene((Thing("circle", colour),), Background("white"))
    cover = draw([scene], SQUARE, 16)[1][0, 0].numpy()
    around_thing, around_picture = drawn(scene), drawn(scene)
    around_thing[(cv2.dilate(cover, np.ones((5, 5))) > 0) & (cover < 0.5)] = 120
    around_picture[:3], around_picture[-3:], around_picture[:, :3], around_picture[:, -3:] = 120, 120, 120, 120
    assert not judge(around_thing, SQUARE, scene).right
    assert not judge(around_picture, SQUARE, scene).right


@pytest.mark.parametrize(
    "other",
    [
        Background("cyan"),
        Background("white", "dotted", "cyan"),
        Background("white", "vertical", "cyan"),
        Background("cyan", "striped", "white"),
        Background("white", "checkered", "cyan"),
        Background("white", "striped", "light blue"),
    ],
)
def test_another_background_is_wrong(other: Background) -> None:
    expected = replace(STAR, background=Background("white", "striped", "cyan"))
    assert judge(drawn(expected), SQUARE, expected).right
    verdict = judge(drawn(replace(STAR, background=other)), SQUARE, expected)
    assert (verdict.background, verdict.parts["shape"], verdict.right) == (False, True, False)


@pytest.mark.parametrize("kind", list(EDITS))
def test_edits_are_right_when_drawn_and_wrong_when_nothing_happened(kind: str) -> None:
    random = Random(kind)
    for grid in (SQUARE, (8, 14)):
        lesson = change(random, grid, kind=kind)
        [before] = lesson.references
        done = judge_edit(softened(drawn(lesson.target, grid)), grid, before, lesson.target)
        assert (done.asked, done.kept) == (True, True)
        assert not judge_edit(drawn(before, grid), grid, before, lesson.target).asked


def test_an_edit_must_keep_the_rest() -> None:
    before = replace(STAR, things=(*STAR.things, Thing("moon", "blue", place="bottom right", size="small")))
    expected = before.with_thing(0, replace(before.things[0], colour="green"))
    moved = expected.with_thing(1, replace(before.things[1], shift=(-0.4, 0)))
    verdict = judge_edit(drawn(moved), SQUARE, before, expected)
    assert (verdict.asked, verdict.kept) == (True, False)
    other_background = replace(expected, background=Background("yellow"))
    assert not judge_edit(drawn(other_background), SQUARE, before, expected).kept
