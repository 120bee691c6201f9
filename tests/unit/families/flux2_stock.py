"""Runs the stock pipelines of the Flux2 family."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from flux_drawing import draw, encode
from PIL import Image

from deployments.contract.job import GenerationJob
from deployments.families.flux2 import Flux2
from deployments.images import Pixels


def stock_run(pipeline: Any, job: GenerationJob, **inputs: Any) -> tuple[torch.Tensor, Pixels]:
    """Runs the stock pipeline. Returns latents as tokens (1, N, C), and the image."""
    latents: list[torch.Tensor] = []

    def after_step(_pipeline: Any, _step: int, _time: torch.Tensor, tensors: dict[str, Any]) -> dict[str, Any]:
        latents.append(tensors["latents"])
        return tensors

    result = pipeline(
        prompt=job.request.prompt,
        width=job.request.width,
        height=job.request.height,
        num_inference_steps=job.request.steps,
        generator=torch.Generator("cpu").manual_seed(job.request.seed),
        callback_on_step_end=after_step,
        max_sequence_length=min(512, getattr(pipeline.tokenizer, "tokenizer", pipeline.tokenizer).model_max_length),
        **inputs,
    )
    return latents[-1], np.asarray(result.images[0])


def assert_same_as_stock(
    family: Flux2, stock: Any, job: GenerationJob, *references: Image.Image, **inputs: Any
) -> None:
    if references:
        inputs["image"] = list(references)
    latents, image = stock_run(stock, job, **inputs)
    state = encode(family, job, *references)
    pixels = draw(family, state)
    assert torch.equal(state.x, latents)
    assert np.array_equal(pixels, image)
