"""What the tests of the Flux2 family share: small jobs, noisy pictures, and the stock pipeline to compare with."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from PIL import Image

from deployments.contract.job import GenerationJob
from deployments.families.base import Commission, Placement
from deployments.families.flux2 import Flux2
from deployments.families.pictures import Pixels
from deployments.families.shared_components import shared_components
from deployments.families.state import State
from deployments.families.step import step


def placement(render_side: int | None = None) -> Placement:
    return Placement(torch.device("cpu"), torch.float32, render_side=render_side)


def stock_pipeline(folder: Path) -> Any:
    shared = shared_components(folder, torch.float32)
    pipeline = DiffusionPipeline.from_pretrained(str(folder), **shared, dtype=torch.float32, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def a_job(
    prompt: str = "a red circle",
    width: int = 64,
    height: int = 64,
    steps: int = 4,
    seed: int = 7,
    guidance: float | None = None,
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
        guidance=guidance,
    )


def a_picture(seed: int, width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def commission(job: GenerationJob, *references: Image.Image) -> Commission:
    return Commission(job, tuple(png(picture) for picture in references))


def encoded(family: Flux2, job: GenerationJob, *references: Image.Image) -> State:
    [state] = family.encode([commission(job, *references)])
    assert isinstance(state, State)
    return state


def drawn(family: Flux2, state: State) -> Pixels:
    while state.done_steps < state.total_steps:
        step(family, [state])
    return family.finish(state)


def drawn_together(family: Flux2, *commissions: Commission) -> list[Pixels]:
    """Encoded together, joining one by one between steps, and leaving when they are done."""
    waiting = [state for state in family.encode(commissions) if isinstance(state, State)]
    assert len(waiting) == len(commissions)
    assert len({state.key for state in waiting}) == 1
    running: list[State] = []
    while waiting or any(state.done_steps < state.total_steps for state in running):
        if waiting:
            running.append(waiting.pop(0))
        step(family, [state for state in running if state.done_steps < state.total_steps])
    return [family.finish(state) for state in running]


def stock_run(pipeline: Any, job: GenerationJob, **inputs: Any) -> tuple[torch.Tensor, Pixels]:
    """Latents as tokens (1, N, C), and the picture."""
    seen: list[torch.Tensor] = []

    def after_step(_pipeline: Any, _step: int, _time: torch.Tensor, tensors: dict[str, Any]) -> dict[str, Any]:
        seen.append(tensors["latents"])
        return tensors

    result = pipeline(
        prompt=job.prompt,
        width=job.width,
        height=job.height,
        num_inference_steps=job.steps,
        generator=torch.Generator("cpu").manual_seed(job.seed),
        callback_on_step_end=after_step,
        max_sequence_length=min(512, getattr(pipeline.tokenizer, "tokenizer", pipeline.tokenizer).model_max_length),
        **inputs,
    )
    return seen[-1], np.asarray(result.images[0])


def assert_same_as_stock(
    family: Flux2, stock: Any, job: GenerationJob, *references: Image.Image, **inputs: Any
) -> None:
    if references:
        inputs["image"] = list(references)
    latents, picture = stock_run(stock, job, **inputs)
    state = encoded(family, job, *references)
    pixels = drawn(family, state)
    assert torch.equal(state.x, latents)
    assert np.array_equal(pixels, picture)


def assert_near(together: list[Pixels], alone: list[Pixels]) -> None:
    """Batch mates change rounding alone: one level of 255, two where it adds up."""
    for after, before in zip(together, alone, strict=True):
        assert np.abs(before.astype(int) - after).max() <= 2
