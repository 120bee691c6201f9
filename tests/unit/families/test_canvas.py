from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.contract.request import FPS
from deployments.families.canvas import (
    MAX_ELONGATION,
    MAX_LEAD,
    Scale,
    VideoShape,
    canvas_for,
    grid_for,
    lead_frames,
    video_shape,
)


@pytest.mark.parametrize("side", [1, 2, 7, 8, 16])
@pytest.mark.parametrize("size", [(1, 1), (1344, 768), (768, 1344), (64, 250), (256, 64), (1023, 1025)])
def test_grid_is_even_with_the_nearest_ratio(size: tuple[int, int], side: int) -> None:
    grid = grid_for(*size, side)
    shorter, longer = sorted(grid)
    assert shorter == max(2, side // 2 * 2)
    ratio = max(size) / min(size)
    best = min(abs(math.log(long / shorter / ratio)) for long in range(2, 400, 2))
    assert abs(math.log(longer / shorter / ratio)) == pytest.approx(best)
    assert (grid[1] >= grid[0]) if size[0] >= size[1] else (grid[0] >= grid[1])


def test_grid_elongation_is_limited() -> None:
    assert (grid_for(16, 9, 8), grid_for(9, 16, 8), grid_for(1, 4, 8)) == ((8, 14), (14, 8), (32, 8))
    assert grid_for(6256, 64, 8) == (8, 8 * MAX_ELONGATION)


@pytest.mark.parametrize("size", [(64, 64), (128, 128), (1000, 1000), (2048, 2048)])
def test_render_side_keeps_only_the_ratio(size: tuple[int, int]) -> None:
    canvas = canvas_for(*size, token=16, render_side=128)
    assert canvas.grid == (8, 8)
    assert canvas.frame == canvas.size == (128, 128)
    assert canvas.crop == (slice(0, 128), slice(0, 128))


def test_image_is_centered_in_whole_tokens() -> None:
    canvas = canvas_for(100, 70, token=16)
    assert (canvas.frame, canvas.grid) == ((70, 100), (5, 7))
    assert canvas.crop == (slice(5, 75), slice(6, 106))


SCALES = st.builds(
    Scale, space=st.sampled_from([8, 16, 32]), time=st.integers(1, 16), audio=st.sampled_from([12.5, 25.0, 43.07])
)


@st.composite
def shapes(draw: st.DrawFn) -> VideoShape:
    """Draws shapes of videos with and without a lead."""
    scale = draw(SCALES)
    there = draw(st.integers(0, 400))
    return video_shape(
        draw(st.integers(16, 2048)),
        draw(st.integers(16, 2048)),
        lead=lead_frames(there, scale.time) if there else 0,
        frames=draw(st.integers(1, 500)),
        scale=scale,
        render_side=draw(st.none() | st.integers(16, 512)),
    )


def count_frames(latents: int, time: int) -> int:
    """Returns the frames of a number of latents; the first latent has one."""
    return 0 if latents == 0 else 1 + (latents - 1) * time


@given(shapes(), st.integers(0, 3000))
def test_frames_use_the_fewest_latents(shape: VideoShape, frames: int) -> None:
    latents = shape.latents_until(frames)
    assert count_frames(latents, shape.scale.time) >= frames
    assert latents == 0 or count_frames(latents - 1, shape.scale.time) < frames


@given(shapes())
def test_latents_tokens_and_audio_fit_the_video(shape: VideoShape) -> None:
    spare = shape.decoded_frames - shape.lead - shape.frames
    assert 0 <= spare < shape.scale.time
    assert shape.decoded_frames == count_frames(shape.latents, shape.scale.time)
    assert count_frames(shape.lead_latents, shape.scale.time) == shape.lead, (
        "new frames must start with their own latent"
    )
    latents, rows, columns = shape.grid
    assert shape.lead_latents < shape.latents == latents
    assert (rows * shape.scale.space, columns * shape.scale.space) == shape.canvas.size
    assert shape.tokens == latents * rows * columns
    rate = shape.scale.audio
    assert abs(shape.audio_latents / rate - shape.decoded_frames / FPS) <= 0.5 / rate + 1e-9
    assert abs(shape.audio_lead / rate - shape.lead / FPS) <= 0.5 / rate + 1e-9
    assert 0 <= shape.audio_lead <= shape.audio_latents


@given(st.integers(1, 5000), st.integers(1, 16))
def test_lead_is_the_longest_number_of_whole_latents(frames: int, time: int) -> None:
    lead = lead_frames(frames, time)
    assert (lead - 1) % time == 0
    assert 1 <= lead <= min(frames, MAX_LEAD)
    assert lead + time > min(frames, MAX_LEAD)


def test_render_side_bounds_the_canvas() -> None:
    shape = video_shape(1280, 704, lead=9, frames=24, scale=Scale(32, 8, 25.0), render_side=128)
    assert min(shape.canvas.size) == 128
    assert math.isclose(shape.canvas.size[1] / shape.canvas.size[0], 1280 / 704, rel_tol=0.2)
