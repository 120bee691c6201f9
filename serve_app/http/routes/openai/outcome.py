"""Why a task came to nothing, in the words of OpenAI's clients."""

from __future__ import annotations

from serve_app.tasks.task import Status, Task

_MODERATED = {Status.REQUEST_MODERATED: "The request", Status.CONTENT_MODERATED: "What was made"}


def failure(task: Task) -> tuple[str, str]:
    """Code and message."""
    details = task.details or {}
    if what := _MODERATED.get(task.status):
        reasons = ", ".join(details.get("Moderation Reasons", []))
        return "moderation_blocked", f"{what} was moderated" + (f": {reasons}" if reasons else "")
    return "generation_failed", str(details.get("error", "The task failed"))
