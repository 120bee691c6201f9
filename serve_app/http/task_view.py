"""A task as those who poll it see it, and how its changes are followed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from starlette.requests import Request

from serve_app.http.origin import public_base
from serve_app.http.services import Services
from serve_app.tasks import presentation
from serve_app.tasks.presentation import Vocabulary
from serve_app.tasks.task import Task


async def encoded(services: Services, task: Task, request: Request) -> bytes:
    """The contract's result body, in the words that the client knows."""
    vocabulary = await _vocabulary_for(services, task, request.headers.get("user-agent", ""))
    base = public_base(request, services.settings.service)
    return presentation.encoded(await services.presenter.body(task, base, vocabulary))


async def looks(services: Services, task_id: str, every_s: float, give_up_s: float) -> AsyncIterator[Task | None]:
    """The task at once, every so often and as soon as it ends, which is the last look; None where there is none.

    Ends are heard of, too, but the channel they come by may lose messages, so that looking alone must do.
    """
    give_up = time.monotonic() + give_up_s
    with services.completions.expect(task_id) as ended:
        while True:
            task = await services.tasks.get(task_id)
            yield task
            left = give_up - time.monotonic()
            if task is None or task.status.terminal or left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), min(left, every_s))


async def _vocabulary_for(services: Services, task: Task, user_agent: str) -> Vocabulary:
    if any(client in user_agent for client in services.settings.service.basic_status_clients):
        return "basic"
    return (await services.projects.get(task.project)).statuses
