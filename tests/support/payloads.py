"""Payloads and results of tasks."""

from __future__ import annotations

from typing import Any

from deployments.contract.request import ResolvedRequest
from serve_app.schemas.defaults import ModelDefaults
from serve_app.tasks.payload import TaskPayload
from serve_app.tasks.result import GenerationResult
from support.jobs import change_job

DEFAULTS = ModelDefaults(model="model", steps=1)


def new_payload(**changes: Any) -> TaskPayload:
    """Returns an image of 64 x 64 pixels in three steps; `changes` are fields of the payload, its request or inputs."""
    request = ResolvedRequest(prompt="a star", seed=1, steps=3, output_format="png", area=64 * 64, width=64, height=64)
    return change_job(TaskPayload(request=request), **changes)


def new_result(key: str = "results/x/1/image.png", **changes: Any) -> GenerationResult:
    fields: dict[str, Any] = {"prompt": "a star", "seed": 1, "start_time": 1.0, "end_time": 2.5, "duration": 1.5}
    return GenerationResult(key=key, **(fields | changes))


RESULT = new_result()
