"""What may go wrong, as exceptions. Their texts are fit for a person, their fields for a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gen_serve_client.types import TaskResult


class GenServeError(Exception):
    """Whatever this package raises, except ValueError for arguments that can't be meant."""


class OutOfReach(GenServeError):
    """The service did not answer, or answered that it can't work now, however often it was asked."""

    def __init__(self, base_url: str, reason: str, status: int | None = None, connected: bool = False) -> None:
        """`status` is its last answer's, 500 or more, if there was one. `connected`: there was somebody."""
        super().__init__(base_url, reason, status, connected)
        self.base_url = base_url
        self.reason = reason
        self.status = status
        self.connected = connected

    def __str__(self) -> str:
        if self.status is None:
            return f"{self.base_url} can't be reached: {self.reason}"
        return f"{self.base_url} can't work now, HTTP {self.status}: {self.reason}"


class UnexpectedAnswer(GenServeError):
    """What answers is no gen-serve service."""

    def __init__(self, base_url: str, path: str) -> None:
        super().__init__(base_url, path)
        self.base_url = base_url
        self.path = path

    def __str__(self) -> str:
        return f"{self.base_url} is something else: it answers {self.path} with no object"


class Refused(GenServeError):
    """The service said no. Kinds of refusals that a program may want to tell apart have classes of their own."""

    def __init__(self, status: int, detail: str, retry_after_s: float | None = None) -> None:
        """`retry_after_s`: when it may be worth another try, if the service says so."""
        super().__init__(status, detail, retry_after_s)
        self.status = status
        self.detail = detail
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"HTTP {self.status}: {self.detail}"


class InsufficientCredits(Refused):
    """402: too few credits, or a spending limit is reached, which ends after `retry_after_s`."""


class NotAllowed(Refused):
    """401 or 403: the key or token is missing, wrong or expired, or may not do this."""


class TooManyRequests(Refused):
    """429, more often than the client was told to try again."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    field: str
    """Where it is, with dots: `body.images.0`."""
    message: str
    kind: str
    """For programs: `missing`, `image_invalid`."""


class InvalidRequest(Refused):
    """422: what was asked for can't be done, and why, field by field."""

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        super().__init__(422, "; ".join(f"{problem.field}: {problem.message}" for problem in problems))
        self.args = (problems,)
        self.problems = tuple(problems)


class TaskNotFound(GenServeError):
    """No such task, or it is no longer kept."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.task_id = task_id

    def __str__(self) -> str:
        return f"there is no task {self.task_id}, or it is no longer kept"


class NotInTime(GenServeError, TimeoutError):
    """A task has not ended within the time that the caller had for it. It goes on, and can be waited for again."""

    def __init__(self, task_id: str, timeout_s: float) -> None:
        super().__init__(task_id, timeout_s)
        self.task_id = task_id
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return f"task {self.task_id} has not ended within {self.timeout_s:g} s; it goes on"


class TaskUnsuccessful(GenServeError):
    """A task ended without a result. It costs nothing."""

    def __init__(self, task: TaskResult) -> None:
        super().__init__(task)
        self.task = task
        self.task_id = task["id"]
        self.details: Mapping[str, Any] = task.get("details") or {}

    @property
    def reason(self) -> str:
        return str(self.details.get("error", "no reason is given"))

    def __str__(self) -> str:
        return f"{self.task['status']}: {self.reason}"


class TaskFailed(TaskUnsuccessful):
    """Status `Error`, also of what was cancelled."""


class Moderated(TaskUnsuccessful):
    """Status `Request Moderated` or `Content Moderated`."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """The categories that were too much."""
        return tuple(self.details.get("Moderation Reasons") or ())

    @property
    def reason(self) -> str:
        return ", ".join(self.reasons) or super().reason


class WebhookRefused(GenServeError):
    """A call that is not, or not now, from who knows the webhook's secret."""
