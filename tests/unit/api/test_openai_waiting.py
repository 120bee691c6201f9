"""Requests of the OpenAI dialect that end before their tasks do."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
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
from serve_app.tasks.rejections import TooManyActive
from serve_app.tasks.task import AcceptedTask

CALLER = cast(Caller, SimpleNamespace(project=SimpleNamespace(id="p")))
SERVED_ENDPOINT = cast(ServedEndpoint, SimpleNamespace(name="gen-x"))
PATIENCE_S = 60


class Tasks:
    """A store of tasks that never end. Records cancellations."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.is_away = False
        self.reads = self

    async def get(self, task_id: str) -> Any:
        if self.is_away:
            raise NO_ANSWER[0]
        return SimpleNamespace(id=task_id, status=SimpleNamespace(terminal=False))

    async def cancel(self, task_id: str, project: str) -> int:
        if self.is_away:
            raise NO_ANSWER[0]
        self.cancelled.append(task_id)
        return 1


class WaitingClient:
    """A connected client. `listening` is set once its disconnect would be noticed."""

    def __init__(self) -> None:
        self.listening = asyncio.Event()
        self.request = Request({"type": "http"}, self._receive)

    async def _receive(self) -> dict[str, Any]:
        self.listening.set()
        return await asyncio.Future()


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


@pytest.fixture
def services(tasks: Tasks) -> Services:
    never = SimpleNamespace(expect=lambda _, changes: nullcontext(asyncio.Event()))
    settings = SimpleNamespace(openai=SimpleNamespace(wait_s=PATIENCE_S))
    task_services = SimpleNamespace(store=tasks, notifications=never)
    inputs = SimpleNamespace(submission=None)
    return cast(Services, SimpleNamespace(tasks=task_services, settings=settings, inputs=inputs))


@pytest.mark.parametrize("keep", [True, False])
async def test_cancelled_wait_cancels_its_tasks_unless_kept(services: Services, tasks: Tasks, keep: bool) -> None:
    client = WaitingClient()
    call = asyncio.create_task(waiting.wait_for_end(services, client.request, CALLER, ["a", "b"], keep=keep))
    async with asyncio.timeout(PATIENCE_S):
        await client.listening.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert tasks.cancelled == ([] if keep else ["a", "b"])


async def test_unreachable_store_names_the_accepted_tasks(services: Services, tasks: Tasks) -> None:
    tasks.is_away = True
    with pytest.raises(waiting.Refusal, match="accepted tasks continue: a, b") as refusal:
        await waiting.wait_for_end(services, WaitingClient().request, CALLER, ["a", "b"], keep=False)
    assert refusal.value.status_code == 503
    assert refusal.value.headers == {"x-should-retry": "false"}, "a repetition would cost twice"


class FakeSubmit:
    """Replaces `submit`. Accepts `max_tasks` after `goes_on`, then refuses."""

    def __init__(self, max_tasks: int) -> None:
        self.max_tasks = max_tasks
        self.count = 0
        self.started = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def __call__(self, *_: object, **__: object) -> AcceptedTask:
        self.started.set()
        await self.goes_on.wait()
        if self.count == self.max_tasks:
            raise TooManyActive(self.max_tasks)
        self.count += 1
        return AcceptedTask(json.dumps({"id": f"task-{self.count}"}), created=True)


def submit_two(
    services: Services, monkeypatch: pytest.MonkeyPatch, submit: FakeSubmit
) -> asyncio.Task[list[AcceptedTask]]:
    monkeypatch.setattr(waiting, "submit", submit)
    bodies = cast(list[GenerationRequest], [None, None])
    return asyncio.create_task(
        waiting.accept_all(services, CALLER, SERVED_ENDPOINT, bodies, base="http://here", idempotency_key="")
    )


@pytest.mark.parametrize("max_tasks", [2, 1])
async def test_cancelled_acceptance_leaves_no_tasks(
    services: Services, tasks: Tasks, monkeypatch: pytest.MonkeyPatch, max_tasks: int
) -> None:
    submit = FakeSubmit(max_tasks)
    call = submit_two(services, monkeypatch, submit)
    async with asyncio.timeout(PATIENCE_S):
        await submit.started.wait()
        call.cancel()
        submit.goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert tasks.cancelled == [f"task-{number + 1}" for number in range(max_tasks)]


async def test_refusal_cancels_the_tasks_accepted_before_it(
    services: Services, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = FakeSubmit(1)
    submit.goes_on.set()
    with pytest.raises(TooManyActive):
        await submit_two(services, monkeypatch, submit)
    assert tasks.cancelled == ["task-1"]
