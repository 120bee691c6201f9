"""Rejections: the reasons for which the task store takes no submission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class TaskRejected(Exception):
    """A submission that changed nothing."""


class SubmissionUnknown(Exception):
    """A submission that was sent and not answered. It was carried out, or never will be; the project's tasks tell."""


class SubmitExpired(TaskRejected):
    """The submission reached the store after its sender had stopped waiting."""


class StoreFull(TaskRejected):
    """The task store has too little memory left to take more."""


class IdempotencyMismatch(TaskRejected):
    """The idempotency key was used before, with another body."""


class RequestInProgress(TaskRejected):
    """Another request with this idempotency key is being handled right now."""


class ReplyUnreadable(TaskRejected):
    """The idempotency key was used before, and the key that sealed its reply is gone."""


class ProjectClosed(TaskRejected):
    """The project takes no new tasks until it is opened again."""


class QueueFull(TaskRejected):
    """The queue holds as many waiting tasks as it may."""


class NeededTaskGone(TaskRejected):
    """The task whose objects this one needs was deleted meanwhile."""


class RateLimited(TaskRejected):
    """The key sends requests faster than it may."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


class TooManyUploads(TaskRejected):
    """The project has as many files, or bytes, waiting for a request as it may."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


class TooManyActive(TaskRejected):
    """The project has as many unfinished tasks as it may."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


class InsufficientCredits(TaskRejected):
    """The organization has less than the price. In milli-credits."""

    def __init__(self, balance: int) -> None:
        super().__init__(balance)
        self.balance = balance


class SpendingLimitReached(TaskRejected):
    """The price does not fit below the project's limit. In milli-credits; `resets` in epoch seconds."""

    def __init__(self, window: str, limit: int, spent: int, resets: float) -> None:
        super().__init__(window, limit, spent, resets)
        self.window = window
        self.limit = limit
        self.spent = spent
        self.resets = resets


_PLAIN: Mapping[str, type[TaskRejected]] = {
    "expired": SubmitExpired,
    "idempotency_mismatch": IdempotencyMismatch,
    "in_progress": RequestInProgress,
    "needed_task_gone": NeededTaskGone,
    "project_closed": ProjectClosed,
    "queue_full": QueueFull,
    "store_full": StoreFull,
}


def rejection(answer: Mapping[str, Any]) -> TaskRejected:
    """Returns the exception for a script's answer with the outcome `rejected`."""
    match answer["reason"]:
        case "rate_limited":
            return RateLimited(answer["wait_ms"] / 1000)
        case "too_many_uploads":
            return TooManyUploads(answer["wait_ms"] / 1000)
        case "too_many_active":
            return TooManyActive(answer["limit"])
        case "insufficient_credits":
            return InsufficientCredits(int(answer["balance"]))
        case "spending_limit":
            window, limit, spent = answer["window"], int(answer["limit"]), int(answer["spent"])
            return SpendingLimitReached(window, limit, spent, answer["resets_ms"] / 1000)
        case reason:
            return _PLAIN[reason]()
