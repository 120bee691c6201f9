"""Limits of the task store, and its refusals."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from deployments.contract.strict_settings import StrictSettings


class Refused(Exception):
    """A submission that changed nothing."""


class Uncertain(Exception):
    """A submission that was sent and not answered. It was carried out, or never will be; the project's tasks tell."""


class TooLate(Refused):
    """The submission came to be carried out after whoever sent it had stopped waiting."""


class StoreFull(Refused):
    """The task store has too little memory left to take more."""


class IdempotencyMismatch(Refused):
    """The idempotency key was used before, with another body."""


class StillInWork(Refused):
    """The idempotency key is that of a request which is being handled right now."""


class ReplyUnreadable(Refused):
    """The idempotency key was used before, and the key that its reply was sealed with is gone."""


class ProjectClosed(Refused):
    """The project takes no new tasks until it is opened again."""


class TooFast(Refused):
    """The key sends requests faster than it may."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


class QueueFull(Refused):
    """The queue holds as many waiting tasks as it may."""


class TooManyActive(Refused):
    """The project has as many unfinished tasks as it may."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


class TooManyUploads(Refused):
    """The project has as many files, or bytes, waiting for a request as it may."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


class NeededTaskGone(Refused):
    """The task that this one is made of was deleted while this one was prepared."""


class InsufficientCredits(Refused):
    """The organization has less than the price. In milli-credits."""

    def __init__(self, balance: int) -> None:
        super().__init__(balance)
        self.balance = balance


class SpendingLimitReached(Refused):
    """The price does not fit below the project's limit. In milli-credits; `resets` in epoch seconds."""

    def __init__(self, window: str, limit: int, spent: int, resets: float) -> None:
        super().__init__(window, limit, spent, resets)
        self.window = window
        self.limit = limit
        self.spent = spent
        self.resets = resets


@dataclass(frozen=True, slots=True)
class Limits:
    """What the store enforces. Times in seconds."""

    max_queued: int = 10_000
    """Waiting tasks per queue."""
    max_active: int = 24
    """Unfinished tasks per project, where it has no limit of its own."""
    max_uploads: int = 500
    """Uploads per project that are kept at a time."""
    max_uploads_mb: int = 4096
    """MiB of a project's uploads that are kept at a time; one that has not come counts with the most it may have."""
    max_memory: float = 0.9
    """Share of the memory that Redis may use; with more in use nothing new is accepted."""
    requests_per_s: float = 100.0
    """Submissions per key, in the long run."""
    burst: int = 500
    """Submissions per key at once."""
    queue_s: float = 24 * 3600
    """From submission to start of work."""
    run_s: float = 15 * 60
    """From the first start of work to the end, all attempts together."""
    model_broken_s: float = 600.0
    """A task waits so long for a model that can't be loaded."""
    retention_s: float = 24 * 3600
    """How long an ended task and its objects are kept."""
    idempotency_s: float = 24 * 3600
    lease_s: float = 10.0
    max_crashes: int = 3
    max_total_crashes: int = 8
    max_interruptions: int = 30
    """Attempts that had begun and that the model gave up without blame: enough for a broken replica to be replaced
    meanwhile. From half as many on, a task runs alone."""
    max_exclusive: int = 1
    """Quarantined in flight per queue."""


def refusal(why: str, *about: int) -> Refused:
    """What a script answered that refuses submissions, as an exception."""
    match why:
        case "rate":
            return TooFast(about[0] / 1000)
        case "queue":
            return QueueFull()
        case "uploads":
            return TooManyUploads(about[0] / 1000)
        case "active":
            return TooManyActive(about[0])
        case "closed":
            return ProjectClosed()
        case "late":
            return TooLate()
        case "needs":
            return NeededTaskGone()
        case "full":
            return StoreFull()
        case "credits":
            return InsufficientCredits(about[0])
        case window:
            limit, spent, resets = about
            return SpendingLimitReached(window, limit, spent, resets / 1000)


class TaskSettings(StrictSettings):
    max_queued: int = Field(default=10_000, ge=1)
    max_active: int = Field(default=24, ge=1)
    max_uploads: int = Field(default=500, ge=1)
    max_uploads_mb: int = Field(default=4096, ge=64)
    max_memory: float = Field(default=0.9, gt=0, lt=1)
    requests_per_s: float = Field(default=100.0, gt=0)
    burst: int = Field(default=500, ge=1)
    queue_s: float = Field(default=24 * 3600, gt=0)
    run_s: float = Field(default=15 * 60, gt=0)
    model_broken_s: float = Field(default=600.0, ge=0)
    retention_s: float = Field(default=24 * 3600, gt=0)
    lease_s: float = Field(default=10.0, ge=1)

    def limits(self) -> Limits:
        return Limits(**self.model_dump())
