"""Runs the stock pipelines of the Flux families."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from flux_drawing import draw, encode
from PIL import Image

from deployments.contract.job import GenerationJob
from deployments.families.flux2 import Flux2
from deployments.images import Pixels


def stock_image(pipeline: Any, job: GenerationJob, **inputs: Any) -> Pixels:
    """Runs the stock pipeline for a job; `inputs` are added to its call or replace parts of it."""
    tokenizer = getattr(pipeline, "tokenizer_2", None) or getattr(pipeline.tokenizer, "tokenizer", pipeline.tokenizer)
    job_inputs = {
        "prompt": job.request.prompt,
        "width": job.request.width,
        "height": job.request.height,
        "num_inference_steps": job.request.steps,
        "generator": torch.Generator("cpu").manual_seed(job.request.seed),
        "max_sequence_length": min(512, tokenizer.model_max_length),
    }
    return np.asarray(pipeline(**job_inputs | inputs).images[0])


def assert_same_as_stock(
    family: Flux2, stock: Any, job: GenerationJob, *references: Image.Image, **inputs: Any
) -> None:
    """Checks that latents, as tokens (1, N, C), and the image equal those of the stock pipeline."""
    latents: list[torch.Tensor] = []

    def after_step(_pipeline: Any, _step: int, _time: torch.Tensor, tensors: dict[str, Any]) -> dict[str, Any]:
        latents.append(tensors["latents"])
        return tensors

    if references:
        inputs["image"] = list(references)
    image = stock_image(stock, job, callback_on_step_end=after_step, **inputs)
    state = encode(family, job, *references)
    pixels = draw(family, state)
    assert torch.equal(state.x, latents[-1])
    assert np.array_equal(pixels, image)
