"""Limits of the task store."""

from __future__ import annotations

from pydantic import Field

from deployments.contract.strict_settings import StrictSettings


class TaskSettings(StrictSettings):
    """Limits that operators set. Times in seconds."""

    max_queued: int = Field(default=10_000, ge=1)
    """Waiting tasks per queue."""
    max_active: int = Field(default=24, ge=1)
    """Unfinished tasks per project, where it has no limit of its own."""
    max_uploads: int = Field(default=500, ge=1)
    """Uploads per project that are kept at a time."""
    max_uploads_mb: int = Field(default=4096, ge=64)
    """MiB of a project's uploads that are kept at a time. An upload that has not come counts with its largest size."""
    max_memory: float = Field(default=0.9, gt=0, lt=1)
    """Share of the memory that Redis may use; with more in use nothing new is accepted."""
    requests_per_s: float = Field(default=100.0, gt=0)
    """Submissions per key, in the long run."""
    burst: int = Field(default=500, ge=1)
    """Submissions per key at once."""
    queue_s: float = Field(default=24 * 3600, gt=0)
    """Time from submission to the start of work."""
    run_s: float = Field(default=15 * 60, gt=0)
    """Time from the first start of work to the end, all attempts together."""
    model_broken_s: float = Field(default=600.0, ge=0)
    """Time that a task waits for a model that can't be loaded."""
    retention_s: float = Field(default=24 * 3600, gt=0)
    """Time that an ended task and its objects are kept."""
    lease_s: float = Field(default=10.0, ge=1)

    def limits(self) -> Limits:
        return Limits(**self.model_dump())


class Limits(TaskSettings):
    """The limits that the store enforces; those beyond the settings are fixed."""

    lease_s: float = 10.0
    idempotency_s: float = 24 * 3600
    max_crashes: int = 3
    max_total_crashes: int = 8
    max_interruptions: int = 30
    """Attempts that had begun and that the model gave up without blame: enough for a broken replica to be replaced
    meanwhile. From half as many on, a task runs alone."""
    max_exclusive: int = 1
    """Quarantined tasks in flight per queue."""
