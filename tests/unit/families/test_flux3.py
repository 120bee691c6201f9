from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from diffusers.modular_pipelines.flux3.modular_blocks_flux3_distilled import Flux3DistilledAutoBlocks
from flux_drawing import draw, encode, load_afresh, load_family, random_image, request
from PIL import Image
from support.jobs import make_job

from deployments.contract.job import GenerationJob
from deployments.contract.model import BUNDLED
from deployments.families.flux3 import Flux3
from deployments.families.pipeline import shared_components
from deployments.families.state import State
from deployments.images import Pixels

FOLDER = BUNDLED / "flux3"


@pytest.fixture(scope="module")
def stock() -> Any:
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


@pytest.fixture
def family() -> Flux3:
    return load_family("flux3")


def stock_run(pipeline: Any, job: GenerationJob, **inputs: Any) -> tuple[torch.Tensor, Pixels]:
    """Runs the stock pipeline. Returns latents as tokens (1, N, C), and the image."""
    result = pipeline(
        prompt=job.request.prompt,
        num_inference_steps=job.request.steps,
        generator=torch.Generator("cpu").manual_seed(job.request.seed),
        output=["latents", "images"],
        **inputs,
    )
    return result["latents"].flatten(2).transpose(1, 2), np.asarray(result["images"][0])


def assert_same_as_stock(
    family: Flux3, stock: Any, job: GenerationJob, *references: Image.Image, **inputs: Any
) -> None:
    latents, image = stock_run(stock, job, **inputs)
    state = encode(family, job, *references)
    pixels = draw(family, state)
    assert torch.equal(state.x, latents)
    assert np.array_equal(pixels, image)


def test_image_with_and_without_references_equals_stock(stock: Any, family: Flux3) -> None:
    assert_same_as_stock(family, stock, make_job(width=96, height=64, steps=3), width=96, height=64)
    job, references = make_job(width=64, height=128, steps=5), [random_image(1, 80, 64), random_image(2, 64, 100)]
    assert_same_as_stock(family, stock, job, *references, image=references, width=64, height=128)


def test_render_side_keeps_a_references_ratio() -> None:
    state = encode(load_family("flux3", render_side=32), make_job(width=250, height=130), random_image(0, 300, 100))
    # The stock block would pad it to 64 pixels.
    assert state.per["references"].shape[1] == 2 * 6


def test_prompt_reaches_the_text_encoder_unchanged(stock: Any) -> None:
    family = load_afresh("flux3")
    encoder: Any = family._encoder
    input_ids = list[torch.Tensor]()
    encoder._text_encoder.register_forward_pre_hook(
        lambda _, args, inputs: input_ids.append(inputs["input_ids"]), with_kwargs=True
    )
    prompt = 'A poster, “Grüße”,\n  two  spaces.\n[{"id": "sun", "bbox": [0, 12, 400, 1000], "desc": "a ☀ & <b>"}]'
    family.encode([request(make_job(prompt=prompt))])
    assert prompt in stock.tokenizer.decode(input_ids[0][0])


def test_prompts_encoded_together_are_unchanged(family: Flux3) -> None:
    prompts = ["a red circle", "word " * 90, "a much longer description of a blue star on a green background"]
    together = family.encode([request(make_job(prompt=prompt)) for prompt in prompts])
    for prompt, state in zip(prompts, together, strict=True):
        assert isinstance(state, State)
        alone = encode(family, make_job(prompt=prompt))
        torch.testing.assert_close(alone.per["text"], state.per["text"], atol=1e-4, rtol=1e-4)


def test_transparent_reference_is_read_as_white(family: Flux3) -> None:
    clear, white = Image.new("RGBA", (64, 64), (255, 0, 0, 0)), Image.new("RGB", (64, 64), "white")
    assert torch.equal(
        encode(family, make_job(), clear).per["references"], encode(family, make_job(), white).per["references"]
    )
