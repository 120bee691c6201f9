from __future__ import annotations

import pytest
from redis.asyncio import Redis

from serve_app.accounts.audit import AuditLog
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore


@pytest.fixture
def audit(redis: Redis, prefix: str) -> AuditLog:
    return AuditLog(redis, prefix)


@pytest.fixture
def keys(redis: Redis, prefix: str) -> KeyStore:
    return KeyStore(redis, prefix)


@pytest.fixture
def organizations(redis: Redis, prefix: str) -> OrganizationStore:
    return OrganizationStore(redis, prefix)


@pytest.fixture
def projects(redis: Redis, prefix: str) -> ProjectStore:
    return ProjectStore(redis, prefix)
