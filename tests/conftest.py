"""Fixtures for all tests: one real server for the session, a prefix of its own for each test."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from serve_app import redis_client
from serve_app.embedded_redis import EmbeddedRedis
from serve_app.tasks.store import TaskStore


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = EmbeddedRedis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex}:"


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = redis_client.connect(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def store(redis: Redis, prefix: str) -> TaskStore:
    return TaskStore(redis, prefix)


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).parent.parent
