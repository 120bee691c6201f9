"""A funded project and dispatchers over its tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from support.dispatchers import PRICE, Scene

from serve_app.accounts.credits import CreditStore


@pytest.fixture
async def scene(redis: Redis, prefix: str) -> AsyncIterator[Scene]:
    await CreditStore(redis, prefix).grant("default", "first", 1000 * PRICE, by="test")
    scene = Scene(redis, prefix)
    yield scene
    await scene.close()
