"""A store that takes as many tasks as tests like, and an outbox over it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from support.deliveries import LIMITS
from support.receiver import Receiver, receiving

from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import Outbox


@pytest.fixture
def store(redis: Redis, prefix: str) -> TaskStore:
    return TaskStore(redis, prefix, LIMITS)


@pytest.fixture
def outbox(store: TaskStore) -> Outbox:
    return Outbox(store.redis, store.prefix)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
async def other_receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver
