"""Tasks that a client waits for, where the server gives the request up: as the proxy does once its client is gone."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import Request

from serve_app.accounts.api_key_auth import Caller
from serve_app.api.openai import waiting
from serve_app.api.services import Services
from serve_app.schemas import GenerationRequest
from serve_app.storage.connection import NO_ANSWER
from serve_app.submission.prepare import ServedEndpoint
from serve_app.tasks.notifications import TaskNotifications
from serve_app.tasks.rejections import TooManyActive
from serve_app.tasks.task import AcceptedTask

CALLER = cast(Caller, SimpleNamespace(project=SimpleNamespace(id="p")))
SERVED_ENDPOINT = cast(ServedEndpoint, SimpleNamespace(name="gen-x"))
PATIENCE_S = 60


class Tasks:
    """A store that notes what is cancelled, and in which no task ever ends."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.away = False

    @property
    def reads(self) -> Tasks:
        return self

    async def get(self, task_id: str) -> Any:
        if self.away:
            raise NO_ANSWER[0]
        return SimpleNamespace(id=task_id, status=SimpleNamespace(terminal=False))

    async def cancel(self, task_id: str, project: str) -> int:
        if self.away:
            raise NO_ANSWER[0]
        self.cancelled.append(task_id)
        return 1


class WaitingClient:
    """One that waits: `listening` is set once its leaving would be noticed."""

    def __init__(self) -> None:
        self.listening = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        self.listening.set()
        await asyncio.Event().wait()
        raise AssertionError("it never leaves by itself")

    @property
    def request(self) -> Request:
        return Request({"type": "http"}, self.receive)


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


@pytest.fixture
def services(tasks: Tasks) -> Services:
    never = SimpleNamespace(expect=lambda _, changes: _Expected())
    settings = SimpleNamespace(openai=SimpleNamespace(wait_s=PATIENCE_S))
    task_services = SimpleNamespace(store=tasks, notifications=cast(TaskNotifications, never))
    inputs = SimpleNamespace(submission=None)
    return cast(Services, SimpleNamespace(tasks=task_services, settings=settings, inputs=inputs))


class _Expected:
    def __enter__(self) -> asyncio.Event:
        return asyncio.Event()

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("keep", [True, False])
async def test_a_wait_that_is_given_up_cancels_its_tasks(services: Services, tasks: Tasks, keep: bool) -> None:
    client = WaitingClient()
    call = asyncio.create_task(waiting.wait_for_end(services, client.request, CALLER, ["a", "b"], keep=keep))
    async with asyncio.timeout(PATIENCE_S):
        await client.listening.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert tasks.cancelled == ([] if keep else ["a", "b"])


async def test_where_the_store_is_away_the_tasks_are_named(services: Services, tasks: Tasks) -> None:
    tasks.away = True
    with pytest.raises(waiting.Refusal, match="accepted tasks continue: a, b") as refusal:
        await waiting.wait_for_end(services, WaitingClient().request, CALLER, ["a", "b"], keep=False)
    assert refusal.value.status_code == 503
    assert refusal.value.headers == {"x-should-retry": "false"}, "a repetition would cost twice"


class Accepting:
    """Stands for `submit`: takes some, one at a time, and refuses what comes then."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = 0
        self.started = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def __call__(self, *_: object, **__: object) -> AcceptedTask:
        self.started.set()
        await self.goes_on.wait()
        if self.count == self.most:
            raise TooManyActive(self.most)
        self.count += 1
        return AcceptedTask(json.dumps({"id": f"task-{self.count}"}), created=True)


def accepting(services: Services) -> asyncio.Task[list[AcceptedTask]]:
    bodies = cast(list[GenerationRequest], [None, None])
    return asyncio.create_task(
        waiting.accept_all(services, CALLER, SERVED_ENDPOINT, bodies, base="http://here", idempotency_key="")
    )


@pytest.mark.parametrize("most", [2, 1])
async def test_an_acceptance_that_is_given_up_leaves_nothing(
    services: Services, tasks: Tasks, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    accept = Accepting(most)
    monkeypatch.setattr(waiting, "submit", accept)
    call = accepting(services)
    async with asyncio.timeout(PATIENCE_S):
        await accept.started.wait()
        call.cancel()
        accept.goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert tasks.cancelled == [f"task-{number + 1}" for number in range(most)]


async def test_what_was_accepted_before_a_refusal_is_cancelled(
    services: Services, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = Accepting(1)
    accept.goes_on.set()
    monkeypatch.setattr(waiting, "submit", accept)
    with pytest.raises(TooManyActive):
        await accepting(services)
    assert tasks.cancelled == ["task-1"]
