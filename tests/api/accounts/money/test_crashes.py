"""The process dies between any two steps of a submission: the books balance, and a repeat makes one task."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from support.crash_injection import CrashInjector, Killed
from support.http_service import make_settings, replace_services
from support.images import image_file, to_base64
from support.stalled_redis import STALE_AFTER_S, StalledRedis

from serve_app.api import services
from serve_app.api.app import create_app
from serve_app.api.errors import OUTCOME_UNKNOWN, STORE_UNREACHABLE
from serve_app.config import catalog
from serve_app.inputs.fetch import FetchLimiter
from serve_app.inputs.inputs import Inputs
from serve_app.inputs.ssrf import UrlGuard
from serve_app.tasks import store as task_store
from serve_app.tasks.task import Task

ENDPOINT = "gen-3-image-klein"
PRICE = 1000
"""Price of an image of a megapixel with one reference, in milli-credits."""


@pytest.fixture(autouse=True)
def idempotency_claims_expire_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frees the idempotency key of a request that died, so that repeats need not wait."""
    monkeypatch.setattr(task_store, "CLAIM_S", 0)


@pytest.fixture
def stalled_redis(monkeypatch: pytest.MonkeyPatch) -> StalledRedis:
    monkeypatch.setattr(task_store, "SUBMIT_S", STALE_AFTER_S)
    return StalledRedis(monkeypatch)


@dataclass
class Submitter:
    """Sends one request with a key, to the app over a new store."""

    app: FastAPI
    secret: str

    @property
    def services(self) -> services.Services:
        return self.app.state.services

    async def submit(self) -> httpx2.Response:
        body = {"prompt": "a star", "images": [to_base64(image_file(64, 64))], "width": 64, "height": 64}
        headers = {"x-key": self.secret, "Idempotency-Key": "once"}
        transport = httpx2.ASGITransport(app=self.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post(f"/v1/{ENDPOINT}", json=body, headers=headers)

    async def tasks(self) -> list[Task]:
        return (await self.services.tasks.store.reads.list_tasks("default", limit=10))[0]

    async def assert_repeat_makes_one_task(self) -> None:
        await self.assert_books_balance()
        response = await self.submit()
        assert response.status_code == 200, response.text
        assert [task.id for task in await self.tasks()] == [response.json()["id"]]
        await self.assert_books_balance()

    async def assert_books_balance(self) -> None:
        """Money adds up, and every stored input belongs to a task or to a reservation that will be swept."""
        tasks = await self.tasks()
        balance = await self.services.accounts.credits.balance("default")
        entries, _ = await self.services.accounts.credits.ledger("default", limit=100)
        assert balance.granted == balance.balance + balance.held + balance.spent
        assert sum(entry.amount for entry in entries) == balance.balance
        assert balance.held == PRICE * sum(not task.status.terminal for task in tasks)
        assert balance.spent == sum(task.cost or 0 for task in tasks)
        expiring = await self.services.redis.zrange(f"{self.services.tasks.store.prefix}retention", 0, -1)
        owners = {key.split("/")[1] for key in await self.services.objects.keys("inputs/")}
        assert owners <= {task.id for task in tasks} | set(expiring)


class SceneFactory:
    """Opens scenes with the services of new processes. They share what takes long to start: routes and decoders."""

    def __init__(self, redis_url: str, prefix: str, repository: Path, folder: Path) -> None:
        self.redis_url, self.prefix, self.repository, self.folder = redis_url, prefix, repository, folder
        settings = make_settings(folder, redis_url, prefix, repository)
        self.catalog = catalog.load(settings)
        self.app = create_app(settings, self.catalog)
        self.inputs = Inputs(UrlGuard([]), decoders=1, limiter=FetchLimiter.from_settings(settings.network))

    @asynccontextmanager
    async def open(self, name: object) -> AsyncIterator[Submitter]:
        settings = make_settings(self.folder / str(name), self.redis_url, f"{self.prefix}{name}:", self.repository)
        async with services.open_services(settings, self.catalog) as opened:
            self.app.state.services = opened
            submission = replace(opened.inputs.submission, inputs=self.inputs)
            replace_services(self.app, "inputs", submission=submission)
            _, secret = await opened.accounts.keys.create("test")
            yield Submitter(self.app, secret)


@pytest.fixture
def scenes(redis_url: str, prefix: str, repository: Path, tmp_path: Path) -> Iterator[SceneFactory]:
    scenes = SceneFactory(redis_url, prefix, repository, tmp_path)
    yield scenes
    scenes.inputs.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_killed_submission_is_whole_or_absent(
    monkeypatch: pytest.MonkeyPatch, scenes: SceneFactory, after: bool
) -> None:
    crash_injector, died = CrashInjector(monkeypatch), 0
    for survived in itertools.count():
        async with scenes.open(survived) as scene:
            try:
                with crash_injector.crash_after(survived, after):
                    response = await scene.submit()
                    assert response.status_code == 200, response.text
            except Killed:
                died += 1
                await scene.assert_repeat_makes_one_task()
            else:
                break
    assert died >= 4, "reserve, store, submit, and the steps before"


@pytest.mark.parametrize("at_once", [False, True], ids=["runs later", "runs at once"])
async def test_error_of_a_stalled_submission_tells_whether_a_task_exists(
    stalled_redis: StalledRedis, scenes: SceneFactory, at_once: bool
) -> None:
    # A server that does not know a script yet refuses it, and the second call, with its text, would stall.
    async with scenes.open("first") as scene:
        assert (await scene.submit()).status_code == 200
    details: Counter[str] = Counter()
    for survived in itertools.count():
        async with scenes.open(survived) as scene:
            with stalled_redis.stall_after(survived, at_once):
                response = await scene.submit()
            await stalled_redis.resume(scene.services.redis)
            if response.status_code == 200:
                break
            assert (response.status_code, "retry-after" in response.headers) == (503, True)
            detail = response.json()["detail"]
            details[detail] += 1
            assert len(await scene.tasks()) == (at_once and detail == OUTCOME_UNKNOWN)
            await scene.assert_repeat_makes_one_task()
    assert set(details) == {STORE_UNREACHABLE, OUTCOME_UNKNOWN}
    assert details[STORE_UNREACHABLE] >= 3
    assert details[OUTCOME_UNKNOWN] == 1, "the submission itself"
