from __future__ import annotations

import math

import pytest

from deployments.families.canvas import canvas_for, grid_for


@pytest.mark.parametrize(
    ("width", "height", "grid"),
    [
        (1, 1, (8, 8)),
        (16, 9, (6, 11)),
        (4, 3, (7, 9)),
        (3, 2, (7, 10)),
        (21, 9, (5, 12)),
        (2, 1, (6, 12)),
        (9, 16, (11, 6)),
        (1, 4, (16, 4)),
        (1000, 1, (1, 72)),
        (1, 1000, (72, 1)),
    ],
)
def test_grids_of_72_tokens(width: int, height: int, grid: tuple[int, int]) -> None:
    assert grid_for(width, height, 72) == grid


@pytest.mark.parametrize("tokens", [1, 2, 7, 16, 72])
@pytest.mark.parametrize("size", [(1, 1), (1344, 768), (768, 1344), (64, 500), (2048, 64), (1023, 1025)])
def test_no_grid_fits_better(size: tuple[int, int], tokens: int) -> None:
    def misfit(rows: int, columns: int) -> float:
        stretch = abs(math.log((columns / rows) / (size[0] / size[1])))
        return stretch + 0.25 * math.log(tokens / (rows * columns))

    rows, columns = grid_for(*size, tokens)
    assert rows * columns <= tokens
    best = min(misfit(r, c) for r in range(1, tokens + 1) for c in range(1, tokens // r + 1))
    assert misfit(rows, columns) == pytest.approx(best)


@pytest.mark.parametrize("size", [(64, 64), (128, 128), (1000, 1000), (2048, 2048)])
def test_with_pixels_to_render_the_size_asked_for_gives_the_ratio_alone(size: tuple[int, int]) -> None:
    canvas = canvas_for(*size, token=16, render_pixels=18432)
    assert canvas.grid == (8, 8)
    assert canvas.frame == canvas.size == (128, 128)
    assert canvas.crop == (slice(0, 128), slice(0, 128))


def test_with_fewer_pixels_than_a_token_has_it_is_one_token() -> None:
    assert canvas_for(300, 200, token=16, render_pixels=100).size == (16, 16)


def test_without_it_the_picture_lies_in_the_middle_of_whole_tokens() -> None:
    canvas = canvas_for(100, 70, token=16)
    assert (canvas.frame, canvas.grid) == ((70, 100), (5, 7))
    assert canvas.crop == (slice(5, 75), slice(6, 106))
