"""Conversion of a task to a model's job, and of the model's output to the task's result."""

from __future__ import annotations

import time
from typing import Any, Final

from deployments.contract.job import FPS, Clip, GenerationJob, LayoutRow, Output
from serve_app.inputs.geometry import RATIOS, Size, clip_ratio, clip_size, ratio_from_prompt, size_within
from serve_app.schemas.layout import caption, parse_layout
from serve_app.schemas.plan import ClipPlan
from serve_app.tasks.task import Job, Lease

DEFAULT_RATIO: Final = "16:9"
CHECKPOINTS: Final = "checkpoints/"
"""Where the models keep how far a video is, for the next attempt."""


def checkpoint_of(task_id: str) -> str:
    """The object that all attempts at a video share."""
    return f"{CHECKPOINTS}{task_id}.safetensors"


def generation_job(job: Job, lease: Lease, prompt: str, folder: str, ratio_said: str = "") -> GenerationJob:
    """The job of this attempt with its final `prompt`; it writes below `folder`, which ends with a slash.

    `ratio_said` is a text in which the rewriter says which ratio suits the prompt, if it does.
    """
    size = _size(job, ratio_said)
    assert job.steps is not None, "a completed plan"
    return GenerationJob(
        id=lease.id,
        attempt=lease.attempt,
        prompt=prompt,
        width=size.width,
        height=size.height,
        steps=job.steps,
        seed=job.seed,
        output_format=job.output_format,
        output_prefix=f"{folder}{lease.id}/{lease.attempt}",
        references=job.references,
        layout=_layout(job),
        exclusive=lease.exclusive,
        guidance=job.guidance,
        guidance_interval=job.guidance_interval,
        mask=job.mask,
        control=job.control,
        canny=job.canny,
        image_prompt=job.image_prompt,
        transparent=job.transparent,
        adapter=job.adapter,
        clip=_clip(job, job.clip, lease) if job.clip else None,
    )


def result_of(generation: GenerationJob, output: Output, took_s: float) -> dict[str, Any]:
    """What the task keeps of work that ended just now. `key`, `thumbnail` and `draft` are for the service alone."""
    now = time.time()
    result: dict[str, Any] = {
        "key": output.key,
        "prompt": generation.prompt,
        "seed": generation.seed,
        "start_time": round(now - took_s, 3),
        "end_time": round(now, 3),
        "duration": round(took_s, 3),
    }
    if output.thumbnail is not None:
        result["thumbnail"] = output.thumbnail
    if generation.clip is not None and output.draft is not None:
        clip = generation.clip
        sizes = {"frames": clip.frames, "width": generation.width, "height": generation.height}
        result["draft"] = {"key": output.draft, **sizes, "sound": clip.sound}
    return result


def _layout(job: Job) -> tuple[LayoutRow, ...]:
    return parse_layout(job.prompt) if job.structured else ()


def _size(job: Job, ratio_said: str) -> Size:
    """As it was asked for, else by the rewriter, the words of the prompt, or the default."""
    if job.width is not None and job.height is not None:
        return Size(job.width, job.height)
    ratio = RATIOS[ratio_from_prompt(ratio_said) or ratio_from_prompt(caption(job.prompt)) or DEFAULT_RATIO]
    if job.clip is not None:
        return clip_size(clip_ratio(ratio), job.area, draft=job.clip.draft)
    return size_within(ratio, job.area)


def _clip(job: Job, planned: ClipPlan, lease: Lease) -> Clip:
    return Clip(
        frames=FPS * planned.seconds,
        checkpoint=checkpoint_of(lease.id),
        sound=planned.sound,
        times=planned.times,
        start=job.start_video,
        draft=planned.draft,
        enhance=planned.enhance,
    )
