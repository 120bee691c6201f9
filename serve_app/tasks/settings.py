"""How many tasks there may be, and for how long."""

from __future__ import annotations

from pydantic import Field

from serve_app.section import Section
from serve_app.tasks.limits import Limits


class TaskSettings(Section):
    max_queued: int = Field(default=10_000, ge=1)
    max_active: int = Field(default=24, ge=1)
    max_memory: float = Field(default=0.9, gt=0, lt=1)
    requests_per_s: float = Field(default=100.0, gt=0)
    burst: int = Field(default=500, ge=1)
    queue_s: float = Field(default=24 * 3600, gt=0)
    run_s: float = Field(default=15 * 60, gt=0)
    retention_s: float = Field(default=24 * 3600, gt=0)
    lease_s: float = Field(default=10.0, ge=1)

    def limits(self) -> Limits:
        return Limits(**self.model_dump())
