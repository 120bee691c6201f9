"""The process dies between any two steps of a submission: the books balance, a repeat does the rest."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from support.crash_injection import CrashInjector, Killed
from support.http_service import make_settings
from support.images import image_file, to_base64
from support.stalled_redis import STALE_AFTER_S, StalledRedis

from serve_app.api import services
from serve_app.api.app import create_app
from serve_app.api.errors import OUTCOME_UNKNOWN, STORE_UNREACHABLE
from serve_app.config import catalog
from serve_app.tasks import store as task_store

ENDPOINT = "gen-3-image-klein"
PRICE = 1000
"""Of an image of a megapixel with one reference, milli-credits."""


@pytest.fixture(autouse=True)
def keys_run_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idempotency key that was kept for a request that died is free again: repetitions need not wait for it."""
    monkeypatch.setattr(task_store, "CLAIM_S", 0)


@pytest.fixture
def stalled_redis(monkeypatch: pytest.MonkeyPatch) -> StalledRedis:
    monkeypatch.setattr(task_store, "SUBMIT_S", STALE_AFTER_S)
    return StalledRedis(monkeypatch)


@asynccontextmanager
async def open_app(redis_url: str, prefix: str, repository: Path, folder: Path) -> AsyncIterator[FastAPI]:
    settings = make_settings(folder, redis_url, prefix, repository)
    offered = catalog.load(settings)
    app = create_app(settings, offered)
    async with services.open_services(settings, offered) as app.state.services:
        yield app


async def submit(app: FastAPI, secret: str) -> httpx2.Response:
    body = {"prompt": "a star", "images": [to_base64(image_file(64, 64))], "width": 64, "height": 64}
    headers = {"x-key": secret, "Idempotency-Key": "once"}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as client:
        return await client.post(f"/v1/{ENDPOINT}", json=body, headers=headers)


async def assert_books_balance(app_services: services.Services) -> None:
    """Money adds up, and every stored input belongs to a task or to a reservation that will be swept."""
    tasks, _ = await app_services.tasks.store.reads.list_tasks("default", limit=10)
    now = await app_services.accounts.credits.balance("default")
    entries, _ = await app_services.accounts.credits.ledger("default", limit=100)
    assert now.granted == now.balance + now.held + now.spent
    assert sum(entry.amount for entry in entries) == now.balance
    assert now.held == PRICE * sum(not task.status.terminal for task in tasks)
    assert now.spent == sum(task.cost or 0 for task in tasks)
    stored_ids = {task.id for task in tasks}
    expiring = await app_services.redis.zrange(f"{app_services.tasks.store.prefix}retention", 0, -1)
    owners = {key.split("/")[1] for key in await app_services.objects.keys("inputs/")}
    assert owners <= stored_ids | set(expiring)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_submission_is_whole_or_not_there_and_its_repeat_makes_one_task(
    crash_injector: CrashInjector, redis_url: str, prefix: str, repository: Path, tmp_path: Path, after: bool
) -> None:
    died = 0
    for survived in itertools.count():
        own = f"{prefix}{survived}:"
        async with open_app(redis_url, own, repository, tmp_path / str(survived)) as app:
            app_services: services.Services = app.state.services
            _, secret = await app_services.accounts.keys.create("test")
            try:
                with crash_injector.crash_after(survived, after):
                    response = await submit(app, secret)
                    assert response.status_code == 200, response.text
            except Killed:
                died += 1
                await assert_books_balance(app_services)
                response = await submit(app, secret)
                assert response.status_code == 200, response.text
            else:
                break
            tasks, _ = await app_services.tasks.store.reads.list_tasks("default", limit=10)
            assert [task.id for task in tasks] == [response.json()["id"]]
            await assert_books_balance(app_services)
    assert died >= 4, "reserve, store, submit, and what comes before"


@pytest.mark.parametrize("at_once", [False, True], ids=["when it goes on", "at once"])
async def test_what_is_told_when_the_server_stalls_is_true(
    stalled_redis: StalledRedis, redis_url: str, prefix: str, repository: Path, tmp_path: Path, at_once: bool
) -> None:
    # A server that does not know a script yet refuses it, and the second call, with its text, is what stalls.
    async with open_app(redis_url, f"{prefix}first:", repository, tmp_path / "first") as app:
        _, secret = await app.state.services.accounts.keys.create("test")
        assert (await submit(app, secret)).status_code == 200
    details: Counter[str] = Counter()
    for survived in itertools.count():
        own = f"{prefix}{survived}:"
        async with open_app(redis_url, own, repository, tmp_path / str(survived)) as app:
            app_services: services.Services = app.state.services
            _, secret = await app_services.accounts.keys.create("test")
            with stalled_redis.stall_after(survived, at_once):
                response = await submit(app, secret)
            await stalled_redis.resume(app_services.redis)
            if response.status_code == 200:
                break
            assert (response.status_code, "retry-after" in response.headers) == (503, True)
            tasks, _ = await app_services.tasks.store.reads.list_tasks("default", limit=10)
            details[response.json()["detail"]] += 1
            if response.json()["detail"] == STORE_UNREACHABLE:
                assert tasks == []
            else:
                assert response.json()["detail"] == OUTCOME_UNKNOWN
                assert len(tasks) == at_once
            await assert_books_balance(app_services)
            response = await submit(app, secret)
            assert response.status_code == 200, response.text
            [task], _ = await app_services.tasks.store.reads.list_tasks("default", limit=10)
            assert task.id == response.json()["id"]
            await assert_books_balance(app_services)
    assert details[STORE_UNREACHABLE] >= 3
    assert details[OUTCOME_UNKNOWN] == 1, "the submission itself"
