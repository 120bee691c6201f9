from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.flux.pipeline_flux_prior_redux import FluxPriorReduxPipeline
from flux_drawing import (
    assert_near,
    draw,
    draw_together,
    encode,
    load_family,
    load_options,
    png,
    random_image,
    request,
    stock_pipeline,
)
from flux_stock import stock_image
from PIL import Image
from support.jobs import make_job

from deployments.backend import JobError
from deployments.contract.job import GenerationJob
from deployments.contract.model import BUNDLED
from deployments.families.conditioning import PreparedRequest
from deployments.families.flux1 import Flux1, Flux1PromptEncoder, guidance_per_step, guided_steps
from deployments.families.pipeline import LoadOptions
from deployments.families.state import State
from deployments.images import Pixels
from deployments.native_loading import find_family


@pytest.fixture(scope="module")
def stock() -> Any:
    return stock_pipeline(BUNDLED / "flux")


@pytest.fixture
def family() -> Flux1:
    return load_family("flux")


def noise(seed: int, width: int = 64, height: int = 64) -> bytes:
    return png(random_image(seed, width, height))


def draw_image(family: Flux1, job: GenerationJob, image_prompt: bytes | None = None) -> Pixels:
    return draw(family, encode(family, job, image_prompt=image_prompt))


def test_single_image_equals_stock(stock: Any, family: Flux1) -> None:
    job = make_job(width=96, height=64, steps=5, guidance=1.5)
    assert np.array_equal(draw_image(family, job), stock_image(stock, job, guidance_scale=1.5))


def test_image_prompt_equals_stock_redux(stock: Any, family: Flux1) -> None:
    parts = {name: getattr(stock, name) for name in ("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")}
    redux: Any = FluxPriorReduxPipeline.from_pretrained(
        str(BUNDLED / "flux" / "redux"), **parts, dtype=torch.float32, local_files_only=True
    )
    job, prompt = make_job(guidance=2.5), noise(1, 90, 70)
    # The stock call has no parameter for the length of texts.
    length = min(512, stock.tokenizer_2.model_max_length)
    with torch.no_grad():
        text, pooled, _ = stock.encode_prompt(job.request.prompt, None, max_sequence_length=length)
    read = redux(Image.open(io.BytesIO(prompt)), prompt_embeds=text, pooled_prompt_embeds=pooled)
    embeds = {"prompt_embeds": read.prompt_embeds, "pooled_prompt_embeds": read.pooled_prompt_embeds}
    expected = stock_image(stock, job, prompt=None, guidance_scale=2.5, **embeds)
    assert np.array_equal(draw_image(family, job, prompt), expected)


def test_image_prompt_needs_redux() -> None:
    refused, fine = load_family("canny").encode(
        [PreparedRequest(make_job(), image_prompt=noise(0)), PreparedRequest(make_job())]
    )
    assert isinstance(refused, JobError)
    assert "no image prompt" in str(refused)
    assert isinstance(fine, State)


def test_batch_changes_an_image_by_at_most_two_levels(family: Flux1) -> None:
    """The jobs have different prompts, seeds, step counts, guidances and intervals."""
    jobs = [
        make_job(prompt="a red circle", steps=2, seed=1, guidance=1.5),
        make_job(prompt="a blue star", steps=5, seed=2, guidance=5.0, guidance_interval=2),
        make_job(prompt="x", steps=3, seed=3, guidance=2.5, guidance_interval=1.5),
        make_job(prompt="word " * 300, steps=4, seed=4, guidance=3.0),
    ]
    alone = [draw_image(family, job) for job in jobs]
    assert_near(draw_together(family, *map(request, jobs)), alone)


def test_untrained_checkpoint_ignores_the_interval(stock: Any) -> None:
    family = Flux1(stock, load_options())
    every, second = (draw_image(family, make_job(guidance=5.0, guidance_interval=n)) for n in (1, 2))
    assert np.array_equal(every, second)


def test_interval_changes_only_guided_images(family: Flux1) -> None:
    for guidance, is_guided in ((5.0, True), (1.0, False)):
        every, second = (draw_image(family, make_job(guidance=guidance, guidance_interval=n)) for n in (None, 2))
        assert np.array_equal(every, second) is not is_guided


def test_invalid_inputs_fail_only_their_job(family: Flux1) -> None:
    *bad, good = family.encode(
        [
            PreparedRequest(make_job(guidance_interval=0.5)),
            PreparedRequest(make_job(), references=(noise(0),)),
            PreparedRequest(make_job(), mask=noise(0)),
            PreparedRequest(make_job(), control=noise(0)),
            PreparedRequest(make_job(), image_prompt=b"no image"),
            PreparedRequest(make_job()),
        ]
    )
    assert all(isinstance(error, JobError) for error in bad)
    assert isinstance(good, State)


@pytest.mark.parametrize("name", ["flux", "kontext", "fill", "canny"])
def test_bundled_checkpoint_belongs_to_flux1(name: str) -> None:
    assert find_family(BUNDLED / name) is Flux1


def test_interval_guides_every_nth_step() -> None:
    for interval, guided in ((None, "11111111"), (1, "11111111"), (1.5, "10110110"), (4, "10001000")):
        assert list(guided_steps(8, interval)) == [each == "1" for each in guided]
    assert guidance_per_step(3, 5.0, 2).tolist() == [5.0, 1.0, 5.0]


@pytest.mark.parametrize(("max_lengths", "length"), [((48, 20), 48), ((int(1e30), 77), 512)])
def test_text_length_follows_the_tokenizers(
    stock: Any, monkeypatch: pytest.MonkeyPatch, max_lengths: tuple[int, int], length: int
) -> None:
    """transformers uses 1e30 for tokenizers without a limit."""
    for tokenizer, longest in zip((stock.tokenizer_2, stock.tokenizer), max_lengths, strict=True):
        monkeypatch.setattr(tokenizer, "model_max_length", longest)
    with torch.inference_mode():
        [(text, _)] = Flux1PromptEncoder(stock, LoadOptions(torch.device("cpu"), torch.float32)).encode(["word " * 90])
    assert text.shape[1] == length
