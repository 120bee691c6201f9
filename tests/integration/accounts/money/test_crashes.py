"""The process dies between any two steps of a submission, or a settlement: the books balance, a repeat does the rest.

A step is a call to Redis or to the object store. Dying is an exception that nothing catches, before the call or after
it, when its answer is lost: no cleanup runs.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from redis.asyncio import Redis
from support.http_service import settings_of
from support.pictures import encoded, picture

from deployments.contract.objects import ObjectStore
from serve_app.config import catalog
from serve_app.http import services
from serve_app.http.ingress import create_app
from serve_app.tasks.task import Status

ENDPOINT = "gen-3-image-klein"
LANE = "flux3-klein"
PRICE = 1000
"""Of a picture of a megapixel with one reference, milli-credits."""


class Killed(BaseException):
    """Nothing runs after it."""


class Executioner:
    """Lets `survives` steps happen, then kills before the next one, or right after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left: int | None = None
        self._after = False
        monkeypatch.setattr(Redis, "execute_command", self._wrapped(Redis.execute_command))
        for name in ("put", "delete_prefix"):
            monkeypatch.setattr(ObjectStore, name, self._wrapped(getattr(ObjectStore, name)))

    @contextmanager
    def awaits(self, survives: int, after: bool) -> Iterator[None]:
        self._left, self._after = survives, after
        try:
            yield
        finally:
            self._left = None

    def _wrapped(self, step: Callable[..., Any]) -> Callable[..., Any]:
        async def stepped(*args: Any, **options: Any) -> Any:
            if self._left is None:
                return await step(*args, **options)
            if self._left == 0 and not self._after:
                raise Killed
            outcome = await step(*args, **options)
            if self._left == 0:
                raise Killed
            self._left -= 1
            return outcome

        return stepped


@pytest.fixture
def executioner(monkeypatch: pytest.MonkeyPatch) -> Executioner:
    return Executioner(monkeypatch)


@asynccontextmanager
async def opened(redis_url: str, prefix: str, repository: Path, folder: Path) -> AsyncIterator[FastAPI]:
    settings = settings_of(folder, redis_url, prefix, repository)
    offered = catalog.load(settings)
    app = create_app(settings, offered)
    async with services.opened(settings, offered) as app.state.services:
        yield app


async def submit(app: FastAPI, secret: str) -> httpx2.Response:
    body = {"prompt": "a star", "images": [encoded(picture(64, 64))], "width": 64, "height": 64}
    headers = {"x-key": secret, "Idempotency-Key": "once"}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://service") as client:
        return await client.post(f"/v1/{ENDPOINT}", json=body, headers=headers)


async def assert_books_balance(found: services.Services) -> None:
    """Money adds up, and every stored input belongs to a task or to a reservation that will be swept."""
    tasks, _ = await found.tasks.list_tasks("default", limit=10)
    now = await found.credits.balance("default")
    entries, _ = await found.credits.ledger("default", limit=100)
    assert now.granted == now.balance + now.held + now.spent
    assert sum(entry.amount for entry in entries) == now.balance
    assert now.held == PRICE * sum(not task.status.terminal for task in tasks)
    assert now.spent == sum(task.cost or 0 for task in tasks)
    kept = {task.id for task in tasks}
    expiring = await found.redis.zrange(f"{found.tasks.prefix}retention", 0, -1)
    owners = {key.split("/")[1] for key in await found.objects.keys("inputs/")}
    assert owners <= kept | set(expiring)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_submission_is_whole_or_not_there_and_its_repeat_makes_one_task(
    executioner: Executioner, redis_url: str, prefix: str, repository: Path, tmp_path: Path, after: bool
) -> None:
    died = 0
    for survived in itertools.count():
        own = f"{prefix}{survived}:"
        async with opened(redis_url, own, repository, tmp_path / str(survived)) as app:
            found: services.Services = app.state.services
            _, secret = await found.keys.create("test")
            try:
                with executioner.awaits(survived, after):
                    response = await submit(app, secret)
                    assert response.status_code == 200, response.text
            except Killed:
                died += 1
                await assert_books_balance(found)
                response = await submit(app, secret)
                assert response.status_code == 200, response.text
            else:
                break
            tasks, _ = await found.tasks.list_tasks("default", limit=10)
            assert [task.id for task in tasks] == [response.json()["id"]]
            await assert_books_balance(found)
    assert died >= 4, "reserve, store, submit, and what comes before"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("outcome", [Status.READY, Status.ERROR, Status.CONTENT_MODERATED])
async def test_a_settlement_happens_once_however_often_it_is_tried(
    executioner: Executioner,
    redis_url: str,
    prefix: str,
    repository: Path,
    tmp_path: Path,
    after: bool,
    outcome: Status,
) -> None:
    died = 0
    for survived in itertools.count():
        own = f"{prefix}{survived}:"
        async with opened(redis_url, own, repository, tmp_path / str(survived)) as app:
            found: services.Services = app.state.services
            _, secret = await found.keys.create("test")
            task_id = (await submit(app, secret)).json()["id"]
            [lease] = await found.tasks.lease(LANE, 1, 10)
            try:
                with executioner.awaits(survived, after):
                    await found.tasks.complete(LANE, task_id, lease.attempt, outcome, result={"key": "k"})
            except Killed:
                died += 1
                await assert_books_balance(found)
                # Its successor tries again, and so does whoever repeats a step whose answer was lost.
                for _ in range(2):
                    assert await found.tasks.complete(LANE, task_id, lease.attempt, outcome, result={"key": "k"})
            else:
                break
            await assert_books_balance(found)
            left = await found.credits.balance("default")
            assert (left.held, left.spent) == (0, PRICE if outcome is Status.READY else 0)
    assert died >= 1
