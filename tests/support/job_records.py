"""The job of a task, as submission writes it."""

from __future__ import annotations

from typing import Any

from serve_app.tasks.task import Job


def new_job(**changes: Any) -> Job:
    """An image of 64 x 64 pixels in three steps; `changes` are fields of `Job`."""
    defaults: dict[str, Any] = {
        "prompt": "a star",
        "seed": 1,
        "steps": 3,
        "output_format": "png",
        "area": 64 * 64,
        "width": 64,
        "height": 64,
    }
    return Job(**(defaults | changes))
