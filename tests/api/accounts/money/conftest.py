"""A store with a high limit of active tasks, and an organization with credits."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis
from support.ledger import FUNDS, ORGANIZATION

from serve_app.accounts.credits import CreditStore
from serve_app.tasks.limits import Limits
from serve_app.tasks.store import TaskStore


@pytest.fixture
def store(redis: Redis, prefix: str) -> TaskStore:
    return TaskStore(redis, prefix, Limits(max_active=1000))


@pytest.fixture
async def credits(redis: Redis, prefix: str) -> CreditStore:
    credits = CreditStore(redis, prefix)
    await credits.grant(ORGANIZATION, "first", FUNDS, by="test")
    return credits
