from __future__ import annotations

from random import Random

import pytest
import torch

from training.build.checkpoints import component
from training.worlds.clips.captions import caption, motion_alone
from training.worlds.clips.drawing import MIDDLE, SPAN, frames, latents, tone_latents
from training.worlds.clips.scene import GRIDS, JOURNEY_S, MOTIONS, SIZES, Scene, random_scene

GRID = (4, 7)
DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1), "still": (0, 0)}


def scene(motion: str) -> Scene:
    return Scene("circle", "red", "blue", motion)


@pytest.mark.parametrize(("motion", "direction"), DIRECTIONS.items())
def test_things_go_where_they_are_told(motion: str, direction: tuple[int, int]) -> None:
    start, end = (scene(motion).circle(GRID, time, JOURNEY_S) for time in (0.0, JOURNEY_S))
    assert [(b > a) - (b < a) for a, b in zip(start[:2], end[:2], strict=True)] == list(direction)
    assert start[2] == end[2]


def test_things_grow_and_shrink() -> None:
    grown, shrunk = ([scene(m).circle(GRID, t, JOURNEY_S)[2] for t in (0.0, JOURNEY_S)] for m in ("grow", "shrink"))
    assert grown == shrunk[::-1]
    assert grown[0] < SIZES["medium"] < grown[1]


@pytest.mark.parametrize("grid", GRIDS)
def test_things_stay_in_sight(grid: tuple[int, int]) -> None:
    for motion in MOTIONS:
        for time in (0.0, JOURNEY_S):
            x, y, radius = Scene("circle", "red", "blue", motion, "large").circle(grid, time, JOURNEY_S)
            assert abs(x) + 0.7 * radius < grid[1] / 2
            assert abs(y) + 0.7 * radius < grid[0] / 2


def test_short_clips_are_beginnings_and_long_ones_take_their_time() -> None:
    moving = scene("right")
    assert moving.circle(GRID, 1, 1) == moving.circle(GRID, 1, JOURNEY_S)
    assert moving.circle(GRID, 20, 20) == moving.circle(GRID, JOURNEY_S, JOURNEY_S)


def test_a_beginning_looks_and_sounds_the_same_in_every_length() -> None:
    scenes = [scene("left"), scene("grow")]
    short, long = (latents(scenes, GRID, count)[0] for count in (25, 97))
    assert torch.allclose(short, long[:, :, :4])
    quick, slow = (tone_latents(scenes, GRID, count) for count in (25, 97))
    assert torch.allclose(quick, slow[:, : quick.shape[1]])


@pytest.mark.parametrize(("motion", "bend"), [("up", 1), ("down", -1), ("left", 0), ("still", 0)])
def test_the_tone_follows_the_height(motion: str, bend: int) -> None:
    pitches = tone_latents([scene(motion)], GRID, 121)[0].argmax(dim=1)
    assert pitches[0] == MIDDLE - bend * SPAN
    assert abs(int(pitches[-1]) - (MIDDLE + bend * SPAN)) <= 1


def test_frames_show_the_thing_on_its_background() -> None:
    shown = frames(scene("still"), GRID, 2)
    assert shown.shape == (2, 3, 128, 224)
    red, blue = shown[0, :, 64, 112], shown[0, :, 5, 5]
    assert red.argmax() == 0
    assert blue.argmax() == 2


def test_captions_say_all_and_fit() -> None:
    random, words = Random(7), component("ltx2", "tokenizer")
    for _ in range(200):
        shown = random_scene(random)
        told = caption(shown, random).lower()
        assert shown.colour in told
        assert shown.background in told or shown.background == "white"
        assert len(words(told)["input_ids"]) < words.model_max_length / 2
        assert shown.colour not in motion_alone(shown, random).lower()
