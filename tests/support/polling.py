"""Polls tasks and returns their last answer, for failures as for successes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gen_serve_client import Client, TaskUnsuccessful


def wait_for_end(
    client: Client, task_id: str, progress: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Returns the task once it has ended. `progress` gets every answer before that."""
    watch = None if progress is None else lambda task: progress(dict(task))
    try:
        return dict(client.wait(task_id, progress=watch).task)
    except TaskUnsuccessful as error:
        return dict(error.task)


def poll_result(client: Client, task_id: str, wait: float = 0) -> dict[str, Any]:
    """Returns the task after `wait` seconds, or sooner if it ends."""
    return dict(client.poll(task_id, wait))
