"""A store with high limits, an outbox over it, and destinations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from support.deliveries import HOUR_S, LIMITS, end_one_task, make_outbox
from support.webhook_receiver import WebhookReceiver, receiving
from support.webhook_senders import make_sender, running, wait_for_attempts

from serve_app.inputs.ssrf import UrlGuard
from serve_app.tasks.store import TaskStore
from serve_app.webhooks import sender
from serve_app.webhooks.outbox import Delivery, Outbox


@pytest.fixture(autouse=True)
def _poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_POLL_S", 0.05)


@pytest.fixture
def store(redis: Redis, prefix: str) -> TaskStore:
    return TaskStore(redis, prefix, LIMITS)


@pytest.fixture
def outbox(store: TaskStore) -> Outbox:
    return Outbox(store.redis, store.prefix)


@pytest.fixture
async def destination() -> AsyncIterator[WebhookReceiver]:
    async with receiving() as destination:
        yield destination


@pytest.fixture
async def other_destination() -> AsyncIterator[WebhookReceiver]:
    async with receiving() as destination:
        yield destination


@pytest.fixture
def deliver(store: TaskStore, tmp_path: Path) -> Callable[..., Awaitable[Delivery]]:
    """Ends a task and runs a sender until `attempts` are recorded. By default the retries follow after hours."""

    async def deliver(
        url: str, attempts: int = 1, outbox: Outbox | None = None, guard: UrlGuard | None = None, **outcome: Any
    ) -> Delivery:
        outbox = outbox or make_outbox(store, schedule_s=(HOUR_S, HOUR_S), jitter=0, timeout_s=60)
        task_id = await end_one_task(store, url, **outcome)
        async with running(make_sender(outbox, store, tmp_path, guard)):
            return await wait_for_attempts(outbox, task_id, attempts)

    return deliver
