"""Helpers for tests of the Flux families: random images, and requests drawn from start to end."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from PIL import Image

from deployments.contract.job import GenerationJob
from deployments.contract.model import BUNDLED, ModelConfig
from deployments.families.conditioning import PreparedRequest
from deployments.families.family import Family
from deployments.families.pipeline import LoadOptions, shared_components
from deployments.families.state import State
from deployments.families.step import step
from deployments.images import Pixels
from deployments.native_loading import find_family


def load_options(**config: Any) -> LoadOptions:
    return LoadOptions(torch.device("cpu"), torch.float32, config=ModelConfig(**config))


def load_afresh(name: str, **config: Any) -> Any:
    """Loads a bundled checkpoint, with empty caches."""
    return find_family(BUNDLED / name).load(BUNDLED / name, load_options(**config))


_load_cached = cache(load_afresh)


def load_family(name: str, **config: Any) -> Any:
    """Loads a bundled checkpoint, once for equal settings."""
    return _load_cached(name, **config)


def stock_pipeline(folder: Path) -> Any:
    shared = shared_components(folder, torch.float32)
    pipeline = DiffusionPipeline.from_pretrained(str(folder), dtype=torch.float32, local_files_only=True, **shared)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def random_image(seed: int, width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def request(job: GenerationJob, *references: Image.Image, image_prompt: bytes | None = None) -> PreparedRequest:
    return PreparedRequest(job, tuple(png(image) for image in references), image_prompt=image_prompt)


def encode(family: Family, job: GenerationJob, *references: Image.Image, image_prompt: bytes | None = None) -> State:
    [state] = family.encode([request(job, *references, image_prompt=image_prompt)])
    assert isinstance(state, State)
    return state


def run_steps(family: Family, *states: State) -> None:
    """Runs all steps of the states in shared batches."""
    while running := [state for state in states if state.done_steps < state.total_steps]:
        step(family, running)


def draw(family: Family, state: State) -> Pixels:
    run_steps(family, state)
    return family.finish(state)


def draw_together(family: Family, *requests: PreparedRequest) -> list[Pixels]:
    """Draws requests that are encoded together, join one by one between steps, and leave when they are done."""
    waiting = [state for state in family.encode(requests) if isinstance(state, State)]
    assert len(waiting) == len(requests)
    running: list[State] = []
    while waiting or any(state.done_steps < state.total_steps for state in running):
        if waiting:
            running.append(waiting.pop(0))
        step(family, [state for state in running if state.done_steps < state.total_steps])
    return [family.finish(state) for state in running]


def assert_near(together: list[Pixels], alone: list[Pixels], levels: int = 2) -> None:
    """Checks that images differ only by rounding: at most `levels` of 255."""
    for after, before in zip(together, alone, strict=True):
        assert np.abs(before.astype(int) - after).max() <= levels
