"""From what submission wrote down to the job that the model gets, and from its output to the task's result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from deployments.contract.clip import FPS, Clip
from deployments.contract.job import Adapter, GenerationJob, Output
from serve_app.media.clip_sizes import clip_ratio, clip_size
from serve_app.media.geometry import RATIOS, Size, size_for
from serve_app.media.ratio_words import ratio_from_prompt
from serve_app.requests.layout import caption, parse_layout
from serve_app.tasks.task import Lease

DEFAULT_RATIO: Final = "16:9"
CHECKPOINTS: Final = "checkpoints/"
"""Where the models keep how far a video is, for the next attempt."""


def checkpoint_of(task_id: str) -> str:
    """The object that all attempts at a video share."""
    return f"{CHECKPOINTS}{task_id}.safetensors"


def job_of(spec: Mapping[str, Any], lease: Lease, prompt: str, place: str) -> GenerationJob:
    """The job of this attempt, which writes below `place`, a folder that ends with a slash."""
    size = Size(spec["width"], spec["height"]) if spec["width"] is not None else _size_from_prompt(spec)
    canny = spec.get("canny")
    return GenerationJob(
        id=lease.id,
        attempt=lease.attempt,
        prompt=prompt,
        width=size.width,
        height=size.height,
        steps=spec["steps"],
        seed=spec["seed"],
        output_format=spec["output_format"],
        output_prefix=f"{place}{lease.id}/{lease.attempt}",
        references=tuple(spec["references"]),
        layout=parse_layout(spec["prompt"]) if spec.get("structured") else (),
        isolated=lease.isolated,
        guidance=spec.get("guidance"),
        guidance_interval=spec.get("guidance_interval"),
        mask=spec.get("mask"),
        control=spec.get("control"),
        canny=None if canny is None else (canny[0], canny[1]),
        image_prompt=spec.get("image_prompt"),
        transparent=spec.get("transparent", False),
        adapter=Adapter(**spec["adapter"]) if spec.get("adapter") else None,
        clip=_clip(spec, lease) if spec.get("clip") else None,
    )


def result_of(job: GenerationJob, output: Output, began: float) -> dict[str, Any]:
    """What the task keeps; `began` is in epoch seconds. `key` and `draft` are for the service alone."""
    now = time.time()
    result: dict[str, Any] = {
        "key": output.key,
        "prompt": job.prompt,
        "seed": job.seed,
        "start_time": round(began, 3),
        "end_time": round(now, 3),
        "duration": round(now - began, 3),
    }
    if job.clip is not None and output.draft is not None:
        clip = job.clip
        sizes = {"frames": clip.frames, "width": job.width, "height": job.height}
        result["draft"] = {"key": output.draft, **sizes, "sound": clip.sound}
    return result


def _size_from_prompt(spec: Mapping[str, Any]) -> Size:
    ratio = RATIOS[ratio_from_prompt(caption(spec["prompt"])) or DEFAULT_RATIO]
    if clip := spec.get("clip"):
        return clip_size(clip_ratio(ratio), spec["area"], draft=clip["draft"])
    return size_for(ratio, spec["area"])


def _clip(spec: Mapping[str, Any], lease: Lease) -> Clip:
    planned = spec["clip"]
    return Clip(
        frames=FPS * planned["seconds"],
        checkpoint=checkpoint_of(lease.id),
        sound=planned["sound"],
        times=tuple(planned["times"]),
        start=spec.get("start_video"),
        draft=planned["draft"],
        enhance=planned["enhance"],
    )
