"""Conversion of a task's payload to a model's job, and of the model's output to the task's result."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from deployments.contract.job import GenerationJob, Output
from deployments.contract.request import ResolvedRequest
from serve_app.inputs.geometry import DEFAULT_RATIO, RATIOS, ratio_from_prompt, size_within, video_ratio, video_size
from serve_app.schemas.layout import caption
from serve_app.tasks.payload import TaskPayload
from serve_app.tasks.result import DraftResult, GenerationResult
from serve_app.tasks.task import Lease

RESULTS: Final = "results/"


def close_ratio(request: ResolvedRequest, ratio_said: str = "") -> ResolvedRequest:
    """Decides the size of a request with an open ratio.

    The ratio is that of `ratio_said`, a text by the rewriter, else that of the prompt's own words, else the default.
    """
    if not request.open_ratio:
        return request
    ratio = RATIOS[ratio_from_prompt(ratio_said) or ratio_from_prompt(caption(request.prompt)) or DEFAULT_RATIO]
    if request.video is not None:
        size = video_size(video_ratio(ratio), request.area, draft=request.video.draft)
    else:
        size = size_within(ratio, request.area)
    return replace(request, width=size.width, height=size.height, open_ratio=False)


def generation_job(payload: TaskPayload, lease: Lease) -> GenerationJob:
    return GenerationJob(
        id=lease.id,
        attempt=lease.attempt,
        request=payload.request,
        output_prefix=f"{RESULTS}{lease.id}/{lease.attempt}",
        inputs=payload.inputs,
        adapter=payload.adapter,
        exclusive=lease.exclusive,
    )


def build_result(request: ResolvedRequest, output: Output, took_s: float) -> GenerationResult:
    """Returns the result of work that ended just now and took `took_s` seconds."""
    now, draft = time.time(), None
    if request.video is not None and output.draft is not None:
        video = request.video
        draft = DraftResult(output.draft, video.frames, request.width, request.height, video.audio)
    return GenerationResult(
        key=output.key,
        prompt=request.prompt,
        seed=request.seed,
        start_time=round(now - took_s, 3),
        end_time=round(now, 3),
        duration=round(took_s, 3),
        files=tuple(key.rpartition("/")[2] for key in output.files),
        thumbnail=output.thumbnail,
        draft=draft,
    )
