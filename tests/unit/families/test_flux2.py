from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flux2_drawing import (
    a_job,
    a_picture,
    assert_near,
    assert_same_as_stock,
    commission,
    drawn,
    drawn_together,
    encoded,
    placement,
    stock_pipeline,
)
from PIL import Image
from support.bundle import copied

from deployments.engine.backend import JobError
from deployments.families.base import CheckpointError, Commission, family_of
from deployments.families.enlarge import fitted
from deployments.families.flux2 import Flux2
from deployments.families.state import State
from training.build.bundle import CHECKPOINTS

FOLDER = CHECKPOINTS / "flux2klein"


@pytest.fixture(scope="module")
def stock() -> Any:
    return stock_pipeline(FOLDER)


@pytest.fixture(scope="module")
def family() -> Flux2:
    return Flux2.load(FOLDER, placement())


@pytest.mark.parametrize(("width", "height", "steps"), [(64, 64, 4), (96, 64, 5), (64, 128, 16)])
def test_alone_it_draws_what_the_stock_pipeline_draws(
    stock: Any, family: Flux2, width: int, height: int, steps: int
) -> None:
    assert_same_as_stock(family, stock, a_job(width=width, height=height, steps=steps))


@pytest.mark.parametrize("sizes", [[(90, 70)], [(80, 64), (64, 100)]])
def test_references_are_read_as_the_stock_pipeline_reads_them(
    stock: Any, family: Flux2, sizes: list[tuple[int, int]]
) -> None:
    references = [a_picture(seed, *size) for seed, size in enumerate(sizes)]
    assert_same_as_stock(family, stock, a_job("combine them", width=96, height=64), *references)


def test_a_reference_of_more_than_a_megapixel_is_scaled_as_the_stock_pipeline_does(stock: Any, family: Flux2) -> None:
    assert_same_as_stock(family, stock, a_job(steps=1), a_picture(1, 1250, 900))


def test_batch_mates_change_a_picture_by_rounding_only(family: Flux2) -> None:
    """Different prompts, seeds and step counts, joining and leaving between steps."""
    jobs = [a_job("a red circle", steps=4, seed=1), a_job("word " * 90, steps=7, seed=2), a_job("x", steps=5, seed=3)]
    alone = [drawn(family, encoded(family, job)) for job in jobs]
    assert_near(drawn_together(family, *map(commission, jobs)), alone)


def test_every_picture_of_a_batch_keeps_its_own_references(family: Flux2) -> None:
    jobs = [a_job("edit", steps=4), a_job("edit", steps=6), a_job("edit", steps=4)]
    pairs = [(a_picture(2 * seed, 80, 64), a_picture(2 * seed + 1, 64, 96)) for seed in range(3)]
    alone = [drawn(family, encoded(family, job, *pair)) for job, pair in zip(jobs, pairs, strict=True)]
    assert not np.array_equal(alone[0], alone[2])
    together = drawn_together(family, *(commission(job, *pair) for job, pair in zip(jobs, pairs, strict=True)))
    assert_near(together, alone)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([(96, 64)], [(64, 96)]),
        ([(96, 64), (64, 64)], [(64, 64), (96, 64)]),
        ([(96, 64)], [(96, 32), (96, 32)]),
        ([(64, 64)], []),
    ],
)
def test_references_of_other_grids_differ_in_key(
    family: Flux2, one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    """Most of these pairs have equal numbers of tokens, and would run together without an error."""
    keys = [encoded(family, a_job(), *(a_picture(0, *size) for size in sizes)).key for sizes in (one, other)]
    assert keys[0] != keys[1]


def test_pictures_of_other_grids_differ_in_key(family: Flux2) -> None:
    tall, wide = encoded(family, a_job(width=64, height=96)), encoded(family, a_job(width=96, height=64))
    assert tall.x.shape == wide.x.shape
    assert tall.key != wide.key


def test_the_distilled_kind_has_no_guidance(family: Flux2) -> None:
    assert "guidance" not in encoded(family, a_job(guidance=7.0)).per


def test_ten_references_are_possible_and_eleven_are_not(family: Flux2) -> None:
    picture = a_picture(0, 64, 64)
    ten, eleven = family.encode([commission(a_job(), *[picture] * count) for count in (10, 11)])
    assert isinstance(ten, State)
    assert ten.per["references"].shape[1] == 10 * 16
    assert isinstance(eleven, JobError)


@pytest.mark.parametrize("size", [(10, 200), (1, 1), (17, 15)])
def test_references_narrower_than_a_token_are_widened(family: Flux2, size: tuple[int, int]) -> None:
    state = encoded(family, a_job(), a_picture(0, *size))
    assert state.per["references"].shape[1] == max(size[0] // 16, 1) * max(size[1] // 16, 1)


@pytest.mark.parametrize(("width", "height"), [(100, 70), (65, 64), (111, 129)])
def test_odd_sizes_are_cut_out_of_the_middle(family: Flux2, width: int, height: int) -> None:
    full_width, full_height = -(-width // 16) * 16, -(-height // 16) * 16
    full = drawn(family, encoded(family, a_job(width=full_width, height=full_height, steps=2)))
    cut = drawn(family, encoded(family, a_job(width=width, height=height, steps=2)))
    left, top = (full_width - width) // 2, (full_height - height) // 2
    assert cut.shape == (height, width, 3)
    assert np.array_equal(cut, full[top : top + height, left : left + width])


@pytest.mark.parametrize(("width", "height"), [(250, 130), (50, 26)])
def test_every_size_is_rendered_with_the_given_side_and_scaled_to_the_exact_size(width: int, height: int) -> None:
    family = Flux2.load(FOLDER, placement(render_side=64))
    references = a_picture(0, 300, 100), a_picture(0, 10, 10)
    state = encoded(family, a_job(width=width, height=height, steps=2), *references)
    assert state.grid == (4, 8)
    assert state.per["references"].shape[1] == 4 * 12 + 4 * 4
    pixels = drawn(family, state)
    assert pixels.shape == (height, width, 3)
    assert pixels.dtype == np.uint8


def test_edges_of_enlarged_pictures_are_sharp_where_that_is_chosen() -> None:
    smooth = Flux2.load(FOLDER, placement(render_side=64))
    sharp = Flux2.load(FOLDER, replace(placement(render_side=64), enlarge="sharp"))
    state = encoded(smooth, a_job(width=250, height=130, steps=1))
    pixels = drawn(smooth, state)
    small = smooth.finish(replace(state, job=replace(state.job, width=128, height=64)))
    assert np.array_equal(pixels, fitted(small, 250, 130, "smooth"))
    assert np.array_equal(sharp.finish(state), fitted(small, 250, 130, "sharp"))


def test_a_reference_that_has_the_rendered_size_is_read_as_it_is(family: Flux2) -> None:
    small = Flux2.load(FOLDER, placement(render_side=64))
    job, reference = a_job(), a_picture(0, 64, 64)
    states = [encoded(model, job, reference) for model in (family, small)]
    assert torch.equal(states[0].per["references"], states[1].per["references"])


def test_a_checkpoint_whose_tokenizer_knows_short_texts_reads_short_texts() -> None:
    pipeline = stock_pipeline(FOLDER)
    for known, length in ((48, 48), (int(1e30), 512)):
        pipeline.tokenizer.model_max_length = known
        assert encoded(Flux2(pipeline, placement()), a_job("word " * 90)).per["text"].shape[1] == length


def test_a_broken_reference_fails_its_own_job_alone(family: Flux2) -> None:
    bad, good = family.encode([Commission(a_job(), (b"no picture",)), Commission(a_job())])
    assert isinstance(bad, JobError)
    assert isinstance(good, State)


def test_previews_come_after_the_first_step_and_resemble_the_picture(family: Flux2) -> None:
    state = encoded(family, a_job(width=128, height=64))
    assert family.preview(state) is None
    picture = drawn(family, state)
    preview = family.preview(state)
    assert preview is not None
    assert preview.shape == (128, 256, 3)
    small = np.asarray(Image.fromarray(preview).resize((16, 8), Image.Resampling.BOX)).astype(float)
    truth = np.asarray(Image.fromarray(picture).resize((16, 8), Image.Resampling.BOX)).astype(float)
    assert np.corrcoef(small.ravel(), truth.ravel())[0, 1] > 0.8


def test_the_bundled_checkpoint_is_known_by_its_index() -> None:
    assert family_of(FOLDER) is Flux2


def test_a_base_model_is_refused(tmp_path: Path) -> None:
    folder = copied("flux2klein", tmp_path)
    index = folder / "model_index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"is_distilled": False}))
    with pytest.raises(CheckpointError, match="distilled"):
        Flux2.load(folder, placement())


@pytest.mark.parametrize("component", ["transformer", "text_encoder", "vae"])
def test_a_cut_off_file_is_a_broken_checkpoint(tmp_path: Path, component: str) -> None:
    folder = copied("flux2klein", tmp_path)
    place = tmp_path / "autoencoders" / "flux2" if component == "vae" else folder / component
    [weights] = place.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError):
        Flux2.load(folder, placement())
