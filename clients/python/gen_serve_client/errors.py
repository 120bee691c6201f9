"""Exceptions of the client, with texts for people and fields for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gen_serve_client.types import TaskResult


class GenServeError(Exception):
    """Base class of this package's exceptions. Invalid arguments raise ValueError."""


class OutOfReach(GenServeError):
    """The service is unreachable or unavailable after all retries."""

    def __init__(self, base_url: str, reason: str, status: int | None = None, connected: bool = False) -> None:
        """`status`: that of the last answer, 500 or more, if any. `connected`: whether a connection was made."""
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
    """The address is not a gen-serve service."""

    def __init__(self, base_url: str, path: str) -> None:
        super().__init__(base_url, path)
        self.base_url = base_url
        self.path = path

    def __str__(self) -> str:
        return f"{self.base_url} is no gen-serve service: its answer to {self.path} lacks the expected fields"


class Refused(GenServeError):
    """The service rejected the request. Subclasses are the reasons that programs tell apart."""

    def __init__(self, status: int, detail: str, retry_after_s: float | None = None) -> None:
        """`retry_after_s`: seconds until another try makes sense, if the service says so."""
        super().__init__(status, detail, retry_after_s)
        self.status = status
        self.detail = detail
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"HTTP {self.status}: {self.detail}"


class InsufficientCredits(Refused):
    """402: too few credits, or a spending limit that resets after `retry_after_s`."""


class NotAllowed(Refused):
    """401 or 403: the key or token is missing, wrong, expired or not permitted to do this."""


class TooManyRequests(Refused):
    """429 after all retries."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    field: str
    """Path of the field: `body.images.0`."""
    message: str
    kind: str
    """Error type for programs: `missing`, `image_invalid`."""


class InvalidRequest(Refused):
    """422: fields of the request are invalid."""

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        super().__init__(422, "; ".join(f"{problem.field}: {problem.message}" for problem in problems))
        self.args = (problems,)
        self.problems = tuple(problems)


class TaskNotFound(GenServeError):
    """The task does not exist, or is no longer kept."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.task_id = task_id

    def __str__(self) -> str:
        return f"there is no task {self.task_id}, or it is no longer kept"


class NotInTime(GenServeError, TimeoutError):
    """The task has not ended within the caller's timeout. It goes on; wait for it again."""

    def __init__(self, task_id: str, timeout_s: float) -> None:
        super().__init__(task_id, timeout_s)
        self.task_id = task_id
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return f"task {self.task_id} has not ended within {self.timeout_s:g} s; it goes on"


class TaskUnsuccessful(GenServeError):
    """The task ended without a result. It costs nothing."""

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
    """Status `Error`; cancelled tasks have it, too."""


class Moderated(TaskUnsuccessful):
    """Status `Request Moderated` or `Content Moderated`."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Categories that moderation rejected."""
        return tuple(self.details.get("Moderation Reasons") or ())

    @property
    def reason(self) -> str:
        return ", ".join(self.reasons) or super().reason


class WebhookRefused(GenServeError):
    """The webhook's signature is missing, wrong or too old."""
