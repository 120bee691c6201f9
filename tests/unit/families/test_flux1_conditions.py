from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import pytest
from flux1_stock import stock_run
from flux_drawing import load_options, png, run_steps, stock_pipeline
from PIL import Image
from support.jobs import change_job, make_job

from deployments.backend import JobError
from deployments.contract.job import GenerationJob
from deployments.contract.model import BUNDLED
from deployments.families.conditioning import PreparedRequest
from deployments.families.flux1 import Flux1
from deployments.families.state import State
from deployments.images import Backdrop, Pixels

pytestmark = pytest.mark.slow

JOB = make_job(guidance=2.5)
SQUARE = (slice(16, 40), slice(8, 56))


def load(name: str, render_side: int | None = None) -> Flux1:
    return Flux1.load(BUNDLED / name, load_options(render_side))


def stock(name: str) -> Any:
    return stock_pipeline(BUNDLED / name)


@pytest.fixture(scope="module")
def kontext() -> Flux1:
    return load("kontext")


@pytest.fixture(scope="module")
def fill() -> Flux1:
    return load("fill")


@pytest.fixture(scope="module")
def canny() -> Flux1:
    return load("canny")


def an_image(seed: int, width: int = 64, height: int = 64) -> Image.Image:
    """Coloured clouds: they have edges of every strength."""
    noise = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)


def a_mask(rows: slice = SQUARE[0], columns: slice = SQUARE[1], width: int = 64, height: int = 64) -> Image.Image:
    pixels = np.zeros((height, width), dtype=np.uint8)
    pixels[rows, columns] = 255
    return Image.fromarray(pixels)


def encode(family: Flux1, request: PreparedRequest) -> State:
    [state] = family.encode([request])
    assert isinstance(state, State), state
    return state


def draw(family: Flux1, request: PreparedRequest) -> Pixels:
    state = encode(family, request)
    run_steps(family, state)
    return family.finish(state)


def assert_as_stock(pixels: Pixels, expected: Pixels) -> None:
    """The same, but for roundings: the autoencoder's sums may add up in another order than in the stock pipeline."""
    off = np.abs(pixels.astype(int) - expected)
    assert off.max() <= 1
    assert (off > 0).mean() < 1e-3


def assert_a_batch_draws_what_each_draws_alone(family: Flux1, requests: Sequence[PreparedRequest]) -> None:
    alone = [draw(family, request) for request in requests]
    states = [state for state in family.encode(requests) if isinstance(state, State)]
    run_steps(family, *states)
    for before, state in zip(alone, states, strict=True):
        assert np.abs(before.astype(int) - family.finish(state)).max() <= 2
    for index, image in enumerate(alone[1:]):
        assert not np.array_equal(alone[index], image)


def four_jobs() -> list[GenerationJob]:
    guidances = (1.5, 30.0, 3.0, 60.0)
    return [change_job(JOB, seed=k, steps=3 + k, guidance=g, prompt=f"image {k}") for k, g in enumerate(guidances)]


def mask_request(job: GenerationJob, image: Image.Image, mask: Image.Image) -> PreparedRequest:
    return PreparedRequest(job, (png(image),), mask=png(mask))


class TestKontext:
    @pytest.mark.parametrize("size", [(30, 31), (480, 1280)])
    def test_one_reference_gives_what_the_stock_pipeline_gives(self, kontext: Flux1, size: tuple[int, int]) -> None:
        reference = an_image(1, *size)
        job = change_job(JOB, width=96)
        expected = stock_run(stock("kontext"), job, image=reference, max_area=96 * 64)
        assert_as_stock(draw(kontext, PreparedRequest(job, (png(reference),))), expected)

    def test_a_batch_keeps_each_its_own_reference(self, kontext: Flux1) -> None:
        requests = [PreparedRequest(job, (png(an_image(k)),)) for k, job in enumerate(four_jobs())]
        assert_a_batch_draws_what_each_draws_alone(kontext, requests)

    def test_several_references_are_told_apart_by_the_first_position_id(self, kontext: Flux1) -> None:
        first, second = png(an_image(1)), png(an_image(2, 96, 48))
        state = encode(kontext, PreparedRequest(JOB, (first, second)))
        ids = state.ids["image_ids"]
        assert ids.shape == (16 + 16 + 18, 3)
        assert [ids[ids[:, 0] == k].shape[0] for k in range(3)] == [16, 16, 18]
        assert ids[32:, 1].max() == 2
        assert ids[32:, 2].max() == 5

    def test_four_references_are_possible_and_five_are_not(self, kontext: Flux1) -> None:
        data = png(an_image(0))
        four, five = kontext.encode([PreparedRequest(JOB, (data,) * 4), PreparedRequest(JOB, (data,) * 5)])
        assert isinstance(four, State)
        assert isinstance(five, JobError)

    @pytest.mark.parametrize(("size", "grid"), [((16, 16), (4, 4)), ((300, 100), (4, 12))])
    def test_with_a_side_to_render_each_reference_has_a_canvas_of_its_own(
        self, size: tuple[int, int], grid: tuple[int, int]
    ) -> None:
        family = load("kontext", render_side=64)
        data = png(an_image(0, *size))
        state = encode(family, PreparedRequest(change_job(JOB, width=size[0], height=size[1]), (data, data)))
        tokens = grid[0] * grid[1]
        assert state.grid == grid
        assert state.per["references"].shape[1] == 2 * tokens
        last = state.ids["image_ids"][tokens : 2 * tokens, 1:].max(dim=0).values
        assert last.tolist() == [grid[0] - 1, grid[1] - 1]


class TestFill:
    def test_inside_the_mask_it_paints_what_the_stock_pipeline_paints(self, fill: Flux1) -> None:
        image, mask = an_image(1, 96, 80), a_mask(width=96, height=80)
        job = change_job(JOB, width=96, height=80, guidance=30.0)
        painted = stock_run(stock("fill"), job, image=image, mask_image=mask)
        expected = Backdrop(np.asarray(image), np.asarray(mask) > 0).under(painted)
        assert_as_stock(draw(fill, mask_request(job, image, mask)), expected)

    def test_a_batch_keeps_each_its_own_image_and_mask(self, fill: Flux1) -> None:
        requests = [
            mask_request(job, an_image(k), a_mask(rows=slice(8 * k, 8 * k + 20))) for k, job in enumerate(four_jobs())
        ]
        assert_a_batch_draws_what_each_draws_alone(fill, requests)

    @pytest.mark.parametrize("side", [None, 48])
    def test_outside_the_mask_pixels_are_the_inputs_own(self, side: int | None) -> None:
        width, height = 75, 90
        image, mask = an_image(3, width, height), a_mask(width=width, height=height)
        job = change_job(JOB, width=width, height=height, steps=2)
        pixels = draw(load("fill", side), mask_request(job, image, mask))
        outside, original = np.asarray(mask) == 0, np.asarray(image)
        assert np.array_equal(pixels[outside], original[outside])
        assert not np.array_equal(pixels[~outside], original[~outside])

    def test_greys_are_split_in_the_middle(self, fill: Flux1) -> None:
        grey = Image.fromarray(np.repeat(np.array([[127, 128]], dtype=np.uint8), 32, axis=1).repeat(64, axis=0))
        image = an_image(4)
        pixels = draw(fill, mask_request(JOB, image, grey))
        assert np.array_equal(pixels[:, :32], np.asarray(image)[:, :32])
        assert np.array_equal(pixels, draw(fill, mask_request(JOB, image, a_mask(slice(0, 64), slice(32, 64)))))

    def test_a_mask_of_another_size_and_half_an_input_are_refused(self, fill: Flux1) -> None:
        image = an_image(0)
        results = fill.encode(
            [
                mask_request(JOB, image, a_mask(width=64, height=65)),
                PreparedRequest(JOB, (png(image),)),
                PreparedRequest(JOB, mask=png(a_mask())),
                PreparedRequest(JOB, (png(image),) * 2, mask=png(a_mask())),
                mask_request(JOB, image, a_mask()),
            ]
        )
        assert [isinstance(result, JobError) for result in results] == [True, True, True, True, False]
        assert "size" in str(results[0])


class TestCanny:
    def test_edges_taken_as_they_are_give_what_the_stock_pipeline_gives(self, canny: Flux1) -> None:
        control = an_image(1, 90, 70)
        job = change_job(JOB, width=96)
        expected = stock_run(stock("canny"), job, control_image=control)
        assert_as_stock(draw(canny, PreparedRequest(job, control=png(control))), expected)

    def test_edges_found_give_what_the_stock_pipeline_gives_for_them(self, canny: Flux1) -> None:
        control = an_image(1)
        edges = Image.fromarray(cv2.Canny(np.array(control), 50, 200)).convert("RGB")
        assert 0 < np.asarray(edges).mean() < 255
        expected = stock_run(stock("canny"), JOB, control_image=edges)
        job = change_job(JOB, canny=(50, 200))
        assert_as_stock(draw(canny, PreparedRequest(job, control=png(control))), expected)

    def test_a_batch_keeps_each_its_own_control(self, canny: Flux1) -> None:
        thresholds = ((50, 200), None, (10, 20), (100, 100))
        requests = [
            PreparedRequest(change_job(job, canny=canny_), control=png(an_image(k)))
            for k, (job, canny_) in enumerate(zip(four_jobs(), thresholds, strict=True))
        ]
        assert_a_batch_draws_what_each_draws_alone(canny, requests)

    def test_no_control_is_no_edges(self, canny: Flux1) -> None:
        black = png(Image.new("RGB", (64, 64)))
        assert np.array_equal(draw(canny, PreparedRequest(JOB)), draw(canny, PreparedRequest(JOB, control=black)))
