"""What was asked of a task, and why it came to nothing, in the words of OpenAI's clients."""

from __future__ import annotations

from serve_app.tasks.job import Job, NewerJob
from serve_app.tasks.task import Status, Task

_MODERATED = {Status.REQUEST_MODERATED: "The request", Status.CONTENT_MODERATED: "What was made"}


def job_of(task: Task) -> Job | None:
    """None where the record can't be read: its key is gone, or a later release wrote it."""
    try:
        return Job.decode(task.job) if task.job else None
    except (NewerJob, ValueError):
        return None


def failure(task: Task) -> tuple[str, str]:
    """Code and message."""
    details = task.details or {}
    if what := _MODERATED.get(task.status):
        reasons = ", ".join(details.get("Moderation Reasons", []))
        return "moderation_blocked", f"{what} was moderated" + (f": {reasons}" if reasons else "")
    return "generation_failed", str(details.get("error", "The task failed"))
