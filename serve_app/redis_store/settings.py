"""Which Redis, and under which names."""

from __future__ import annotations

from pydantic import Field

from serve_app.redis_store.scripts import Replication
from serve_app.section import Section


class RedisSettings(Section):
    url: str | None = None
    prefix: str = "gen:"
    replicas: int = Field(default=0, ge=0)
    replicated_s: float = Field(default=1.0, gt=0)

    def replication(self) -> Replication:
        return Replication(self.replicas, self.replicated_s)
