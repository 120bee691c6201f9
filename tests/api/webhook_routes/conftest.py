"""A service whose outbox no other test fills, and a destination."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.http_client import HOOK_HOST
from support.http_service import Service, running
from support.website import Website, serving

from serve_app.config.settings import TaskSettings, WebhookSettings

MANY = 1_000_000


@pytest.fixture(scope="module")
def service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One of its own: a sender here must not see what other tests leave in the outbox."""
    tasks = TaskSettings(max_queued=MANY, lease_s=3600, requests_per_s=MANY, burst=MANY)
    webhooks = WebhookSettings(schedule_s=(3600, 3600), jitter=0, failure_threshold=MANY)
    folder = tmp_path_factory.mktemp("deliveries")
    with running(folder, redis_url, repository, tasks=tasks, webhooks=webhooks) as service:
        yield service


@pytest.fixture
def hook() -> Iterator[Website]:
    """Plays `hooks.test`, and takes whatever comes to `/done`."""
    with serving(HOOK_HOST) as site:
        site.set_page("/done", status=204)
        yield site


@pytest.fixture(autouse=True)
def _apart(service: Service) -> Iterator[None]:
    """No test finds what another one left on its way."""
    yield
    redis, prefix = service.worker.tasks.redis, service.settings.redis.prefix

    async def empty() -> None:
        for pattern in ("outbox*", "deliver*"):
            async for key in redis.scan_iter(f"{prefix}{pattern}", count=10_000):
                await redis.delete(key)

    service.worker.run(empty())
