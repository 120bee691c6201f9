"""Probes: tiny images that show at load whether a model works on this device, and how fast."""

from __future__ import annotations

import io
import time
from statistics import median
from typing import Final

import torch
from PIL import Image
from torch import Tensor

from deployments.backend import JobError
from deployments.contract.job import GenerationJob
from deployments.contract.request import ResolvedRequest
from deployments.families.conditioning import PreparedRequest
from deployments.families.device_errors import translate_device_errors
from deployments.families.family import Family
from deployments.families.state import State
from deployments.families.step import step
from deployments.families.video_family import VideoFamily

SMALL: Final = 64
"""Pixels per side."""
_TOLERANCE: Final = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05}
"""Share of the largest velocity by which a packed forward may differ from the stock one: rounding stays far below, an
image that attends to its neighbours does not."""
_TIMED_STEPS: Final = 3


def probe_single(family: Family | VideoFamily) -> None:
    """Takes one step of something small. Raises any error, and RuntimeError for NaN or infinity."""
    velocity = family.probe() if isinstance(family, VideoFamily) else _velocities(family, [_image(family)])[0]
    if not torch.isfinite(velocity).all():
        raise RuntimeError("its results are not finite")


def probe_batch(family: Family) -> None:
    """Takes one step of small images of different shapes, in a batch and alone. Raises RuntimeError if the results
    differ. One image has a reference if the family takes any, so that the others have none in the sequence."""

    def images() -> list[State]:
        sizes = (SMALL, SMALL), (2 * SMALL, SMALL)
        return [_image(family, *size) for size in sizes] + _images_with_reference(family)

    in_batch = _velocities(family, images())
    solo = [_velocities(family, [image])[0] for image in images()]
    for packed, stock in zip(in_batch, solo, strict=True):
        if not (packed - stock).abs().max() <= _TOLERANCE[family.transformer.dtype] * stock.abs().max():
            raise RuntimeError("images that step together are not what they are alone")


def warm_up(family: Family, side: int, count: int, *, height: int | None = None) -> None:
    """Makes `count` images of `side` pixels in a batch from start to end, so that everything compiles now. They are
    square without `height`. Raises NotFinite, OutOfMemory."""
    with translate_device_errors():
        images = [_image(family, side, height or side) for _ in range(count)]
        step(family, images)
        for image in images:
            family.finish(image)


def measure_step(family: Family | VideoFamily, side: int = SMALL, *, count: int = 1) -> float:
    """Returns the seconds of a warm step of `count` images of `side` pixels, or of a tiny video."""
    durations = []
    for _ in range(1 + _TIMED_STEPS):
        states = [] if isinstance(family, VideoFamily) else [_image(family, side, side) for _ in range(count)]
        started_at = time.perf_counter()
        family.probe() if isinstance(family, VideoFamily) else step(family, states)
        durations.append(time.perf_counter() - started_at)
    return median(durations[1:])


def _velocities(family: Family, states: list[State]) -> list[Tensor]:
    step(family, states)
    return [state.v for state in states if state.v is not None]


def _images_with_reference(family: Family) -> list[State]:
    """Returns an image with a reference, or none if the family takes no references."""
    data = io.BytesIO()
    Image.new("RGB", (SMALL, SMALL), "grey").save(data, "PNG")
    try:
        return [_image(family, references=(data.getvalue(),))]
    except JobError:
        return []


def _image(family: Family, width: int = SMALL, height: int = SMALL, *, references: tuple[bytes, ...] = ()) -> State:
    job = GenerationJob(
        id=f"probe-{width}x{height}-{len(references)}",
        attempt=0,
        request=ResolvedRequest(prompt="a probe", width=width, height=height, steps=1, seed=0, output_format="png"),
        output_prefix="probe",
    )
    [state] = family.encode([family.fetch(PreparedRequest(job, references))])
    if isinstance(state, JobError):
        raise state
    return state
