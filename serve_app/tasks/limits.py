"""Limits of the task store: those that operators set, and fixed ones."""

from __future__ import annotations

from pydantic import Field

from deployments.contract.strict_settings import StrictSettings


class TaskSettings(StrictSettings):
    max_queued: int = Field(default=10_000, ge=1)
    """Waiting tasks per model."""
    max_active: int = Field(default=24, ge=1)
    """Unfinished tasks per project without a limit of its own."""
    max_uploads: int = Field(default=500, ge=1)
    """Uploads that a project may keep; more get a 429."""
    max_uploads_mb: int = Field(default=4096, ge=64)
    """MiB of a project's uploads. An upload that has not arrived counts with its largest size."""
    max_memory: float = Field(default=0.9, gt=0, lt=1)
    """Share of Redis' maxmemory above which submissions get a 503."""
    requests_per_s: float = Field(default=100.0, gt=0)
    """Submissions a second of one key, in the long run."""
    burst: int = Field(default=500, ge=1)
    """Submissions of one key at once."""
    queue_s: float = Field(default=24 * 3600, gt=0)
    """Seconds from submission to the start of work; then Error."""
    run_s: float = Field(default=15 * 60, gt=0)
    """Seconds from the first start of work to the end, all attempts together; then Error."""
    model_broken_s: float = Field(default=600.0, ge=0)
    """Seconds that a task waits for a model that can't be loaded; then Error."""
    retention_s: float = Field(default=24 * 3600, gt=0)
    """Seconds that an ended task and its result are kept."""
    lease_s: float = Field(default=10.0, ge=1)
    """Seconds before another dispatcher takes over the tasks of a silent one. Below 3, a busy one may count as
    silent."""

    def limits(self) -> Limits:
        return Limits(**self.model_dump())


class Limits(TaskSettings):
    """The limits that the store enforces; those beyond the settings are fixed."""

    lease_s: float = 10.0
    idempotency_s: float = 24 * 3600
    max_crashes: int = 3
    max_total_crashes: int = 8
    max_interruptions: int = 30
    """Interrupted attempts of a task, enough to outlive the replacement of a broken replica. From half of them on, the
    task runs alone."""
    max_exclusive: int = 1
    """Quarantined tasks in flight per queue."""
