"""Conversion of a task to a model's job, and of the model's output to the task's result."""

from __future__ import annotations

import time
from typing import Any, Final

from deployments.contract.job import GenerationJob, LayoutRow, Output, VideoParams
from serve_app.inputs.geometry import RATIOS, Size, ratio_from_prompt, size_within, video_ratio, video_size
from serve_app.schemas.layout import caption, parse_layout
from serve_app.schemas.plan import VideoPlan
from serve_app.tasks.task import Job, Lease, NewerJob, Status, Task

DEFAULT_RATIO: Final = "16:9"
RESULTS: Final = "results/"
CHECKPOINTS: Final = "checkpoints/"
"""Where the models keep how far a video is, for the next attempt."""


def checkpoint_key(task_id: str) -> str:
    """The object that all attempts at a video share."""
    return f"{CHECKPOINTS}{task_id}.safetensors"


def generation_job(job: Job, lease: Lease, prompt: str, ratio_said: str = "") -> GenerationJob:
    """The job of this attempt with its final `prompt`.

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
        output_prefix=f"{RESULTS}{lease.id}/{lease.attempt}",
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
        video=_video(job, job.video, lease) if job.video else None,
        negative_prompt=job.negative_prompt,
        strength=job.strength,
    )


def build_result(generation: GenerationJob, output: Output, took_s: float) -> dict[str, Any]:
    """What the task keeps of work that ended just now. `key`, `thumbnail`, `draft`, and `files`, the names of all that
    was stored beside them, are for the service alone."""
    now = time.time()
    result: dict[str, Any] = {
        "key": output.key,
        "prompt": generation.prompt,
        "seed": generation.seed,
        "start_time": round(now - took_s, 3),
        "end_time": round(now, 3),
        "duration": round(took_s, 3),
        "files": [key.rpartition("/")[2] for key in output.files],
    }
    if output.thumbnail is not None:
        result["thumbnail"] = output.thumbnail
    if generation.video is not None and output.draft is not None:
        video = generation.video
        sizes = {"frames": video.frames, "width": generation.width, "height": generation.height}
        result["draft"] = {"key": output.draft, **sizes, "audio": video.audio}
    return result


def stored_files(task: Task | None) -> list[str] | None:
    """The keys of all objects of an ended task, from its record. None where only a listing tells: the record can't be
    read, or an attempt stored something and came to no result."""
    try:
        job = Job.decode(task.job) if task is not None else None
    except (NewerJob, ValueError, KeyError):
        return None
    if task is None or job is None:
        return None
    files = [key for key in job.inputs if key.startswith(f"inputs/{task.id}/")]  # others are of a draft's own task
    if job.video is not None:
        files.append(checkpoint_key(task.id))
    if task.attempt == 0 or (task.attempt == 1 and task.status is Status.REQUEST_MODERATED):
        return files
    result = task.result or {}
    if task.attempt > 1 or "files" not in result:
        return None
    folder = result["key"].rpartition("/")[0]
    return [*files, *(f"{folder}/{name}" for name in result["files"])]


def _layout(job: Job) -> tuple[LayoutRow, ...]:
    return parse_layout(job.prompt) if job.structured else ()


def _size(job: Job, ratio_said: str) -> Size:
    """As it was asked for, else by the rewriter, the words of the prompt, or the default."""
    if job.width is not None and job.height is not None:
        return Size(job.width, job.height)
    ratio = RATIOS[ratio_from_prompt(ratio_said) or ratio_from_prompt(caption(job.prompt)) or DEFAULT_RATIO]
    if job.video is not None:
        return video_size(video_ratio(ratio), job.area, draft=job.video.draft)
    return size_within(ratio, job.area)


def _video(job: Job, plan: VideoPlan, lease: Lease) -> VideoParams:
    return VideoParams(
        frames=plan.fps * plan.seconds,
        fps=plan.fps,
        checkpoint=checkpoint_key(lease.id),
        audio=plan.audio,
        times=plan.times,
        start=job.start_video,
        draft=plan.draft,
        enhance=plan.enhance,
    )
