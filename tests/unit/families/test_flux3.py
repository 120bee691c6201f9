from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.modular_pipelines.flux3.modular_blocks_flux3_distilled import Flux3DistilledAutoBlocks
from PIL import Image

from deployments.contract.job import GenerationJob
from deployments.engine.backend import JobError
from deployments.families.base import Commission, Placement
from deployments.families.enlarge import fitted
from deployments.families.flux3 import Flux3
from deployments.families.pictures import Pixels
from deployments.families.shared_components import shared_components
from deployments.families.state import State
from deployments.families.step import step

FOLDER = Path(__file__).parents[3] / "deployments" / "bundled" / "checkpoints" / "flux3"


def placement(render_side: int | None = None) -> Placement:
    return Placement(torch.device("cpu"), torch.float32, render_side=render_side)


def stock_pipeline() -> Any:
    blocks = Flux3DistilledAutoBlocks()
    blocks.sub_blocks.pop("prompt_upsampler")
    pipeline = blocks.init_pipeline(str(FOLDER))
    pipeline.update_components(**shared_components(FOLDER, torch.float32))
    pipeline.load_components(dtype=torch.float32, local_files_only=True)
    # The stock block expects a processor around the tokenizer; the bundled checkpoint stores a plain one.
    pipeline.tokenizer.tokenizer = pipeline.tokenizer
    for block in pipeline.blocks.sub_blocks.values():
        if hasattr(block, "set_progress_bar_config"):
            block.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture(scope="module")
def stock() -> Any:
    return stock_pipeline()


@pytest.fixture(scope="module")
def family() -> Flux3:
    return Flux3.load(FOLDER, placement())


def a_job(
    prompt: str = "a red circle", width: int = 64, height: int = 64, steps: int = 4, seed: int = 7
) -> GenerationJob:
    return GenerationJob(
        id="job",
        attempt=1,
        prompt=prompt,
        width=width,
        height=height,
        steps=steps,
        seed=seed,
        output_format="png",
        output_prefix="results/job/1",
    )


def a_picture(seed: int, width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def encoded(family: Flux3, job: GenerationJob, *references: Image.Image) -> State:
    [state] = family.encode([Commission(job, tuple(png(picture) for picture in references))])
    assert isinstance(state, State)
    return state


def drawn(family: Flux3, state: State) -> Pixels:
    while state.done_steps < state.total_steps:
        step(family, [state])
    return family.finish(state)


def stock_run(pipeline: Any, job: GenerationJob, **inputs: Any) -> tuple[torch.Tensor, Pixels]:
    """Latents as tokens (1, N, C), and the picture."""
    result = pipeline(
        prompt=job.prompt,
        num_inference_steps=job.steps,
        generator=torch.Generator("cpu").manual_seed(job.seed),
        output=["latents", "images"],
        **inputs,
    )
    return result["latents"].flatten(2).transpose(1, 2), np.asarray(result["images"][0])


@pytest.mark.parametrize(("width", "height", "steps"), [(64, 64, 4), (96, 64, 5), (64, 128, 16)])
def test_alone_it_draws_what_the_stock_pipeline_draws(
    stock: Any, family: Flux3, width: int, height: int, steps: int
) -> None:
    job = a_job(width=width, height=height, steps=steps)
    latents, picture = stock_run(stock, job, width=width, height=height)
    state = encoded(family, job)
    pixels = drawn(family, state)
    assert torch.equal(state.x, latents)
    assert np.array_equal(pixels, picture)


def test_one_reference_is_kept_whole_like_the_stock_pipeline_does(stock: Any, family: Flux3) -> None:
    reference = a_picture(1, 90, 70)
    job = a_job("make it blue", width=90, height=70)
    latents, picture = stock_run(stock, job, image=reference)
    state = encoded(family, job, reference)
    pixels = drawn(family, state)
    assert torch.equal(state.x, latents)
    assert np.array_equal(pixels, picture)


def test_two_references_of_different_sizes_give_what_the_stock_pipeline_gives(stock: Any, family: Flux3) -> None:
    references = [a_picture(1, 80, 64), a_picture(2, 64, 100)]
    job = a_job("combine", width=96, height=64)
    latents, picture = stock_run(stock, job, image=references, width=96, height=64)
    state = encoded(family, job, *references)
    pixels = drawn(family, state)
    assert torch.equal(state.x, latents)
    assert np.array_equal(pixels, picture)


def test_ten_references_are_possible_and_eleven_are_not(family: Flux3) -> None:
    data = png(a_picture(0, 64, 64))
    ten, eleven = family.encode([Commission(a_job(), (data,) * 10), Commission(a_job(), (data,) * 11)])
    assert isinstance(ten, State)
    assert ten.per["references"].shape[1] == 10 * 16
    assert isinstance(eleven, JobError)


def test_batch_mates_change_a_picture_by_no_more_than_one_level(family: Flux3) -> None:
    """Different prompts, seeds and step counts, joining and leaving between steps."""
    jobs = [a_job("a red circle", steps=4, seed=1), a_job("a blue star", steps=7, seed=2), a_job("x", steps=5, seed=3)]
    alone = [drawn(family, encoded(family, job)) for job in jobs]
    states = family.encode([Commission(job) for job in jobs])
    waiting = [state for state in states if isinstance(state, State)]
    assert len({state.key for state in waiting}) == 1
    running: list[State] = []
    while waiting or any(state.done_steps < state.total_steps for state in running):
        if waiting:
            running.append(waiting.pop(0))
        batch = [state for state in running if state.done_steps < state.total_steps]
        step(family, batch)
        step(family, [state for state in batch if state.done_steps < state.total_steps])
    for before, state in zip(alone, running, strict=True):
        after = family.finish(state)
        assert np.abs(before.astype(int) - after).max() <= 1


def test_batches_with_references_of_equal_size_keep_their_own(family: Flux3) -> None:
    pictures = [a_picture(seed, 64, 64) for seed in (1, 2)]
    alone = [drawn(family, encoded(family, a_job("edit"), picture)) for picture in pictures]
    states = [encoded(family, a_job("edit"), picture) for picture in pictures]
    for _ in range(4):
        step(family, states)
    together = [family.finish(state) for state in states]
    assert not np.array_equal(alone[0], alone[1])
    for before, after in zip(alone, together, strict=True):
        assert np.abs(before.astype(int) - after).max() <= 1


@pytest.mark.parametrize(
    "other",
    [
        a_job(width=80),
        a_job(prompt="word " * 90),
    ],
)
def test_states_that_differ_in_a_shape_differ_in_key(family: Flux3, other: GenerationJob) -> None:
    assert encoded(family, a_job()).key != encoded(family, other).key


def test_references_of_equal_area_but_other_shape_differ_in_key(family: Flux3) -> None:
    wide, tall = a_picture(0, 128, 64), a_picture(0, 64, 128)
    assert encoded(family, a_job(), wide).key != encoded(family, a_job(), tall).key


@pytest.mark.parametrize(("width", "height"), [(100, 70), (65, 64), (111, 129)])
def test_odd_sizes_are_cut_out_of_the_middle(family: Flux3, width: int, height: int) -> None:
    full_width, full_height = -(-width // 16) * 16, -(-height // 16) * 16
    full = drawn(family, encoded(family, a_job(width=full_width, height=full_height, steps=2)))
    cut = drawn(family, encoded(family, a_job(width=width, height=height, steps=2)))
    left, top = (full_width - width) // 2, (full_height - height) // 2
    assert cut.shape == (height, width, 3)
    assert np.array_equal(cut, full[top : top + height, left : left + width])


@pytest.mark.parametrize(("width", "height"), [(250, 130), (50, 26)])
def test_every_size_is_rendered_with_the_given_side_and_scaled_to_the_exact_size(width: int, height: int) -> None:
    family = Flux3.load(FOLDER, placement(render_side=32))
    state = encoded(family, a_job(width=width, height=height, steps=2), a_picture(0, 300, 100))
    assert state.grid == (2, 4)
    # Narrower than the 64 pixels that the stock block would pad it to.
    assert state.per["references"].shape[1] == 2 * 6
    pixels = drawn(family, state)
    assert pixels.shape == (height, width, 3)
    assert pixels.dtype == np.uint8


def test_edges_of_enlarged_pictures_are_sharp_where_that_is_chosen() -> None:
    smooth = Flux3.load(FOLDER, placement(render_side=64))
    sharp = Flux3.load(FOLDER, replace(placement(render_side=64), enlarge="sharp"))
    state = encoded(smooth, a_job(width=250, height=130, steps=1))
    pixels = drawn(smooth, state)
    small = smooth.finish(replace(state, job=replace(state.job, width=128, height=64)))
    assert np.array_equal(pixels, fitted(small, 250, 130, "smooth"))
    assert np.array_equal(sharp.finish(state), fitted(small, 250, 130, "sharp"))


@pytest.mark.parametrize("count", [1, 3])
def test_a_reference_that_has_the_rendered_size_is_read_as_it_is(family: Flux3, count: int) -> None:
    small = Flux3.load(FOLDER, placement(render_side=64))
    references = [a_picture(seed, 64, 64) for seed in range(count)]
    states = [encoded(model, a_job(), *references) for model in (family, small)]
    assert torch.equal(states[0].per["references"], states[1].per["references"])


def test_the_prompt_reaches_the_text_encoder_unchanged() -> None:
    pipeline = stock_pipeline()
    family = Flux3(pipeline, placement())
    seen: list[torch.Tensor] = []
    pipeline.text_encoder.register_forward_pre_hook(
        lambda _, args, inputs: seen.append(inputs["input_ids"]), with_kwargs=True
    )
    prompt = 'A poster, “Grüße”,\n  two  spaces.\n[{"id": "sun", "bbox": [0, 12, 400, 1000], "desc": "a ☀ & <b>"}]'
    family.encode([Commission(a_job(prompt))])
    assert prompt in pipeline.tokenizer.decode(seen[0][0])


def test_prompts_of_equal_padded_length_share_a_pass_and_mean_the_same(family: Flux3) -> None:
    prompts = ["a red circle", "word " * 90, "a much longer description of a blue star on a green background"]
    together = family.encode([Commission(a_job(prompt)) for prompt in prompts])
    for prompt, state in zip(prompts, together, strict=True):
        assert isinstance(state, State)
        alone = encoded(family, a_job(prompt))
        assert alone.key == state.key
        torch.testing.assert_close(alone.per["text"], state.per["text"], atol=1e-4, rtol=1e-4)


def test_a_broken_reference_fails_its_own_job_alone(family: Flux3) -> None:
    bad, good = family.encode([Commission(a_job(), (b"no picture",)), Commission(a_job())])
    assert isinstance(bad, JobError)
    assert isinstance(good, State)


def test_transparent_parts_of_a_reference_are_white(family: Flux3) -> None:
    clear, white = Image.new("RGBA", (64, 64), (255, 0, 0, 0)), Image.new("RGB", (64, 64), "white")
    assert torch.equal(
        encoded(family, a_job(), clear).per["references"], encoded(family, a_job(), white).per["references"]
    )


def test_previews_come_after_the_first_step_and_resemble_the_picture(family: Flux3) -> None:
    state = encoded(family, a_job(width=128, height=64))
    assert family.preview(state) is None
    picture = drawn(family, state)
    preview = family.preview(state)
    assert preview is not None
    assert preview.shape == (128, 256, 3)
    small = np.asarray(Image.fromarray(preview).resize((16, 8), Image.Resampling.BOX)).astype(float)
    truth = np.asarray(Image.fromarray(picture).resize((16, 8), Image.Resampling.BOX)).astype(float)
    assert np.corrcoef(small.ravel(), truth.ravel())[0, 1] > 0.8
