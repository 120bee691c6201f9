from __future__ import annotations

import pytest
from redis.asyncio import Redis

from serve_app.accounts.audit import AuditLog


@pytest.fixture
def audit(redis: Redis, prefix: str) -> AuditLog:
    return AuditLog(redis, prefix)
