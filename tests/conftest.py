"""Fixtures for all tests: one Redis server for the session, one key prefix for each test."""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpcore2
import hypothesis
import pytest
from redis.asyncio import Redis

from deployments.telemetry import logs
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage import connection
from serve_app.tasks.store import TaskStore

# Tests run in parallel; torch threads that spin while they wait would slow down all of them.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Tests must not find a service that already runs on this machine.
os.environ["XDG_STATE_HOME"] = os.devnull
# Background jobs of a shell ignore Ctrl-C, and services started by tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Otherwise each HTTP client reads all root certificates.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)

pytest_plugins = ["support.timing", "support.promises"]

# Tests must also pass on a busy machine.
hypothesis.settings.register_profile(
    "any-machine", hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any-machine")


def pytest_collection_finish() -> None:
    """Exempts imported modules from garbage collection; otherwise each full collection walks all of torch."""
    gc.collect()
    gc.freeze()


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
    client = connection.connect(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def store(redis: Redis, prefix: str) -> TaskStore:
    return TaskStore(redis, prefix)


@pytest.fixture(autouse=True)
def restore_loggers() -> Iterator[None]:
    """Restores the loggers: a deployment in this process sets up logging as a replica does."""
    loggers = [logging.getLogger(name) for name in logs.OWN]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        if logger.level != level:
            logger.setLevel(level)  # clears a cache of all loggers
        logger.handlers[:] = handlers


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).parent.parent
