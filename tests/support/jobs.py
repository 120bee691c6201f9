"""Jobs for tests: one way to build each, with defaults that are quick to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deployments.contract.job import GenerationJob, VideoParams


def make_job(name: str = "job", *, size: int = 64, **fields: Any) -> GenerationJob:
    """A job for an image, `size` pixels per side unless `fields` say otherwise."""
    defaults: dict[str, Any] = {
        "id": name,
        "attempt": 1,
        "prompt": "a red circle",
        "width": size,
        "height": size,
        "steps": 4,
        "seed": 7,
        "output_format": "png",
        "output_prefix": f"results/{name}/1",
    }
    return GenerationJob(**defaults | fields)


def make_video_job(name: str = "job", *, video: Mapping[str, Any] | None = None, **fields: Any) -> GenerationJob:
    """A job for a video of 17 frames, 96 x 64; `video` has what differs from the usual Video."""
    defaults: dict[str, Any] = {
        "prompt": "a red circle moves to the right",
        "width": 96,
        "height": 64,
        "steps": 3,
        "output_format": "mp4",
        "video": VideoParams(**{"frames": 17, "checkpoint": f"checkpoints/{name}"} | dict(video or {})),
    }
    return make_job(name, **defaults | fields)
