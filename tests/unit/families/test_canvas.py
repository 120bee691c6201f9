from __future__ import annotations

import math

import pytest

from deployments.families.canvas import MOST_ELONGATED, canvas_for, grid_for


@pytest.mark.parametrize(
    ("width", "height", "grid"),
    [
        (16, 9, (8, 14)),
        (9, 16, (14, 8)),
        (1, 4, (32, 8)),
    ],
)
def test_grids_with_a_shorter_side_of_8_tokens(width: int, height: int, grid: tuple[int, int]) -> None:
    assert grid_for(width, height, 8) == grid


@pytest.mark.parametrize("side", [1, 2, 7, 8, 16])
@pytest.mark.parametrize("size", [(1, 1), (1344, 768), (768, 1344), (64, 250), (256, 64), (1023, 1025)])
def test_sides_are_even_and_the_ratio_is_as_near_as_can_be(size: tuple[int, int], side: int) -> None:
    grid = grid_for(*size, side)
    shorter, longer = sorted(grid)
    assert shorter == max(2, side // 2 * 2)
    ratio = max(size) / min(size)
    best = min(abs(math.log(long / shorter / ratio)) for long in range(2, 400, 2))
    assert abs(math.log(longer / shorter / ratio)) == pytest.approx(best)
    assert (grid[1] >= grid[0]) if size[0] >= size[1] else (grid[0] >= grid[1])


def test_pictures_can_only_be_so_long() -> None:
    assert grid_for(6256, 64, 8) == (8, 8 * MOST_ELONGATED)


@pytest.mark.parametrize("size", [(64, 64), (128, 128), (1000, 1000), (2048, 2048)])
def test_with_a_side_to_render_the_size_asked_for_gives_the_ratio_alone(size: tuple[int, int]) -> None:
    canvas = canvas_for(*size, token=16, render_side=128)
    assert canvas.grid == (8, 8)
    assert canvas.frame == canvas.size == (128, 128)
    assert canvas.crop == (slice(0, 128), slice(0, 128))


def test_without_it_the_picture_lies_in_the_middle_of_whole_tokens() -> None:
    canvas = canvas_for(100, 70, token=16)
    assert (canvas.frame, canvas.grid) == ((70, 100), (5, 7))
    assert canvas.crop == (slice(5, 75), slice(6, 106))
