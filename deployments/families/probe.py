"""Probes: tiny images that show at start whether a model works on this device, and how fast."""

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
_ALIKE: Final = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05}
"""Up to which share of the largest velocity a packed forward may differ from the stock one: roundings stay far below,
an image that sees its neighbours does not."""
_TIMED: Final = 3


def try_alone(family: Family | VideoFamily) -> None:
    """One step of something small. Raises whatever goes wrong, RuntimeError for numbers that are none."""
    velocity = family.probe() if isinstance(family, VideoFamily) else _velocities(family, [_image(family)])[0]
    if not torch.isfinite(velocity).all():
        raise RuntimeError("its results are not finite")


def try_together(family: Family) -> None:
    """One step of small images of different shapes, together and alone; one of them has a reference where the family
    takes any, so that the others' rows of references are empty. Raises RuntimeError when they differ."""

    def images() -> list[State]:
        sizes = (SMALL, SMALL), (2 * SMALL, SMALL)
        return [_image(family, *size) for size in sizes] + _images_with_reference(family)

    together = _velocities(family, images())
    alone = [_velocities(family, [image])[0] for image in images()]
    for one, other in zip(together, alone, strict=True):
        if not (one - other).abs().max() <= _ALIKE[family.transformer.dtype] * other.abs().max():
            raise RuntimeError("images that step together are not what they are alone")


def warm_up(family: Family, side: int, count: int, *, height: int | None = None) -> None:
    """Makes so many images of `side` pixels at a time, from beginning to end: what compiles, compiles now. They are
    square unless `height` says otherwise. Raises NotFinite, OutOfMemory."""
    with translate_device_errors():
        images = [_image(family, side, height or side) for _ in range(count)]
        step(family, images)
        for image in images:
            family.finish(image)


def step_seconds(family: Family | VideoFamily, side: int = SMALL, *, count: int = 1) -> float:
    """Of one step of `count` images of `side` pixels, or of a tiny video, once everything is warm."""
    durations = []
    for _ in range(1 + _TIMED):
        states = [] if isinstance(family, VideoFamily) else [_image(family, side, side) for _ in range(count)]
        began = time.perf_counter()
        family.probe() if isinstance(family, VideoFamily) else step(family, states)
        durations.append(time.perf_counter() - began)
    return median(durations[1:])


def _velocities(family: Family, states: list[State]) -> list[Tensor]:
    step(family, states)
    return [state.v for state in states if state.v is not None]


def _images_with_reference(family: Family) -> list[State]:
    """An image with a reference, or nothing where the family takes none."""
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
