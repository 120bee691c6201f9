from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
import torch
from flux_drawing import load_family, png, run_steps, stock_pipeline
from flux_stock import stock_image
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


def stock(name: str) -> Any:
    return stock_pipeline(BUNDLED / name)


@pytest.fixture
def kontext() -> Flux1:
    return load_family("kontext")


@pytest.fixture
def fill() -> Flux1:
    return load_family("fill")


@pytest.fixture
def canny() -> Flux1:
    return load_family("canny")


def random_image(seed: int, width: int = 64, height: int = 64) -> Image.Image:
    """Returns coloured clouds, which have edges of every strength."""
    noise = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)


def box_mask(rows: slice = SQUARE[0], columns: slice = SQUARE[1], width: int = 64, height: int = 64) -> Image.Image:
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
    """Checks that images differ only by rounding: the autoencoder can add in another order than stock."""
    off = np.abs(pixels.astype(int) - expected)
    assert off.max() <= 1
    assert (off > 0).mean() < 1e-3


def mask_request(job: GenerationJob, image: Image.Image, mask: Image.Image) -> PreparedRequest:
    return PreparedRequest(job, (png(image),), mask=png(mask))


class TestKontext:
    @pytest.mark.parametrize("size", [(30, 31), (480, 1280)])
    def test_reference_equals_stock(self, kontext: Flux1, size: tuple[int, int]) -> None:
        reference = random_image(1, *size)
        job = change_job(JOB, width=96)
        expected = stock_image(stock("kontext"), job, guidance_scale=2.5, image=reference, max_area=96 * 64)
        assert_as_stock(draw(kontext, PreparedRequest(job, (png(reference),))), expected)

    def test_references_differ_by_the_first_position_id(self, kontext: Flux1) -> None:
        first, second = png(random_image(1)), png(random_image(2, 96, 48))
        state = encode(kontext, PreparedRequest(JOB, (first, second)))
        ids = state.ids["image_ids"]
        assert ids.shape == (16 + 16 + 18, 3)
        assert [ids[ids[:, 0] == k].shape[0] for k in range(3)] == [16, 16, 18]
        assert ids[32:, 1].max() == 2
        assert ids[32:, 2].max() == 5

    def test_at_most_four_references(self, kontext: Flux1) -> None:
        data = png(random_image(0))
        four, five = kontext.encode([PreparedRequest(JOB, (data,) * 4), PreparedRequest(JOB, (data,) * 5)])
        assert isinstance(four, State)
        assert isinstance(five, JobError)

    @pytest.mark.parametrize(("size", "grid"), [((16, 16), (4, 4)), ((300, 100), (4, 12))])
    def test_render_side_gives_each_reference_its_canvas(self, size: tuple[int, int], grid: tuple[int, int]) -> None:
        family = load_family("kontext", render_side=64)
        data = png(random_image(0, *size))
        state = encode(family, PreparedRequest(change_job(JOB, width=size[0], height=size[1]), (data, data)))
        tokens = grid[0] * grid[1]
        assert state.grid == grid
        assert state.per["references"].shape[1] == 2 * tokens
        last = state.ids["image_ids"][tokens : 2 * tokens, 1:].max(dim=0).values
        assert last.tolist() == [grid[0] - 1, grid[1] - 1]


class TestFill:
    def test_masked_part_equals_stock(self, fill: Flux1) -> None:
        image, mask = random_image(1, 96, 80), box_mask(width=96, height=80)
        job = change_job(JOB, width=96, height=80, guidance=30.0)
        painted = stock_image(stock("fill"), job, guidance_scale=30.0, image=image, mask_image=mask)
        expected = Backdrop(np.asarray(image), np.asarray(mask) > 0).under(painted)
        assert_as_stock(draw(fill, mask_request(job, image, mask)), expected)

    @pytest.mark.parametrize("side", [None, 48])
    def test_unmasked_pixels_are_unchanged(self, side: int | None) -> None:
        width, height = 75, 90
        image, mask = random_image(3, width, height), box_mask(width=width, height=height)
        job = change_job(JOB, width=width, height=height, steps=2)
        pixels = draw(load_family("fill", render_side=side), mask_request(job, image, mask))
        outside, original = np.asarray(mask) == 0, np.asarray(image)
        assert np.array_equal(pixels[outside], original[outside])
        assert not np.array_equal(pixels[~outside], original[~outside])

    def test_grey_mask_is_split_at_128(self, fill: Flux1) -> None:
        grey = Image.fromarray(np.repeat(np.array([[127, 128]], dtype=np.uint8), 32, axis=1).repeat(64, axis=0))
        image = random_image(4)
        pixels = draw(fill, mask_request(JOB, image, grey))
        assert np.array_equal(pixels[:, :32], np.asarray(image)[:, :32])
        assert np.array_equal(pixels, draw(fill, mask_request(JOB, image, box_mask(slice(0, 64), slice(32, 64)))))

    def test_incomplete_fill_inputs_are_rejected(self, fill: Flux1) -> None:
        image = random_image(0)
        results = fill.encode(
            [
                mask_request(JOB, image, box_mask(width=64, height=65)),
                PreparedRequest(JOB, (png(image),)),
                PreparedRequest(JOB, mask=png(box_mask())),
                PreparedRequest(JOB, (png(image),) * 2, mask=png(box_mask())),
                mask_request(JOB, image, box_mask()),
            ]
        )
        assert [isinstance(result, JobError) for result in results] == [True, True, True, True, False]
        assert "size" in str(results[0])


class TestCanny:
    def test_given_edges_equal_stock(self, canny: Flux1) -> None:
        control = random_image(1, 90, 70)
        job = change_job(JOB, width=96)
        expected = stock_image(stock("canny"), job, guidance_scale=2.5, control_image=control)
        assert_as_stock(draw(canny, PreparedRequest(job, control=png(control))), expected)

    def test_detected_edges_equal_stock(self, canny: Flux1) -> None:
        control = random_image(1)
        edges = Image.fromarray(cv2.Canny(np.array(control), 50, 200)).convert("RGB")
        assert 0 < np.asarray(edges).mean() < 255
        expected = stock_image(stock("canny"), JOB, guidance_scale=2.5, control_image=edges)
        job = change_job(JOB, canny=(50, 200))
        assert_as_stock(draw(canny, PreparedRequest(job, control=png(control))), expected)

    def test_batch_keeps_each_jobs_thresholds(self, canny: Flux1) -> None:
        requests = [
            PreparedRequest(change_job(JOB, canny=thresholds), control=png(random_image(1)))
            for thresholds in ((50, 200), None, (10, 20))
        ]
        controls = [state.per["channels"] for state in canny.encode(requests) if isinstance(state, State)]
        for request, control in zip(requests, controls, strict=True):
            assert torch.allclose(encode(canny, request).per["channels"], control, atol=1e-5)
        assert not torch.equal(controls[0], controls[2])

    def test_missing_control_has_no_edges(self, canny: Flux1) -> None:
        black = png(Image.new("RGB", (64, 64)))
        assert np.array_equal(draw(canny, PreparedRequest(JOB)), draw(canny, PreparedRequest(JOB, control=black)))
