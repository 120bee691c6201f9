"""Waits for tasks: accepts all or none, and cancels them when the client disconnects."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from fastapi import Request

from serve_app.accounts.api_key_auth import Caller
from serve_app.api.openai.schema import NO_RETRY, SERVER, Refusal
from serve_app.api.routes.results import task_views
from serve_app.api.services import Services
from serve_app.schemas import GenerationRequest
from serve_app.storage.connection import UNREACHABLE
from serve_app.submission.prepare import ServedEndpoint
from serve_app.submission.submit import submit
from serve_app.tasks.task import AcceptedTask, Status, Task

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ClientGone(Exception):
    """The client has disconnected."""


async def accept_all(
    services: Services,
    caller: Caller,
    served_endpoint: ServedEndpoint,
    bodies: Sequence[GenerationRequest],
    *,
    base: str,
    idempotency_key: str,
    traceparent: str = "",
) -> list[AcceptedTask]:
    """Submits all requests. If one fails, cancels the others at no cost and raises what `submit` raises.

    An `idempotency_key` is only valid for a single request.
    """

    async def accept_each() -> list[AcceptedTask]:
        submissions: list[AcceptedTask] = []
        try:
            for body in bodies:
                task = await submit(
                    services.inputs.submission,
                    caller,
                    served_endpoint,
                    body,
                    base=base,
                    idempotency_key=idempotency_key,
                    traceparent=traceparent,
                )
                submissions.append(task)
        except Exception:
            await cancel(services, caller, task_ids(submissions))
            raise
        return submissions

    # Completed even if this request is cancelled, as on a disconnect: otherwise unknown tasks could remain.
    accepting = asyncio.ensure_future(accept_each())
    try:
        return await asyncio.shield(accepting)
    except asyncio.CancelledError:
        (submissions,) = await asyncio.gather(accepting, return_exceptions=True)
        if not isinstance(submissions, BaseException) and not idempotency_key:
            await cancel(services, caller, task_ids(submissions))
        raise


async def wait_for_end(
    services: Services, request: Request, caller: Caller, ids: Sequence[str], *, keep: bool
) -> list[Task]:
    """Waits until all tasks have ended. Raises Refusal after `openai.wait_s`; the tasks continue.

    Raises ClientGone if the client disconnects, and cancels the tasks unless `keep` is set.
    """
    try:
        return await _cancel_on_disconnect(request, _ends(services, ids))
    except (ClientGone, asyncio.CancelledError):
        if not keep:
            await cancel(services, caller, ids)
        raise
    except UNREACHABLE as problem:
        logger.warning("can't wait for tasks of a client: %s", type(problem).__name__)
        message = f"The task store is out of reach; accepted tasks continue: {', '.join(ids)}"
        raise Refusal(503, message, "service_unavailable", error_type=SERVER, headers=NO_RETRY) from None


async def cancel(services: Services, caller: Caller, ids: Sequence[str]) -> None:
    for task_id in ids:
        try:
            await services.tasks.store.cancel(task_id, caller.project.id)
        except UNREACHABLE as problem:
            logger.warning("abandoned task %s could not be cancelled: %s", task_id, type(problem).__name__)


def task_ids(submissions: Sequence[AcceptedTask]) -> list[str]:
    return [json.loads(each.reply)["id"] for each in submissions]


async def _ends(services: Services, ids: Sequence[str]) -> list[Task]:
    wait_s = services.settings.openai.wait_s

    async def last(task_id: str) -> Task | None:
        *_, task = [view async for view in task_views(services, task_id, wait_s)]
        return task

    tasks_or_none = await asyncio.gather(*map(last, ids))
    tasks = [task for task in tasks_or_none if task is not None and task.status.terminal]
    if len(tasks) < len(ids):
        ready = {task.id for task in tasks}
        pending = ", ".join(task_id for task_id in ids if task_id not in ready)
        message = (
            f"Not finished after {wait_s:g} seconds, and still running: {pending}. Poll with "
            "GET /v1/get_result?id=…, or cancel with DELETE /v1/tasks/…"
        )
        raise Refusal(504, message, "timeout", error_type=SERVER, headers=NO_RETRY)
    return tasks


async def _cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`. Cancels it and raises ClientGone when the client disconnects."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for each in (working, leaving):
            each.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    """Returns when the client disconnects. The body must have been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


_MODERATED = {Status.REQUEST_MODERATED: "The request", Status.CONTENT_MODERATED: "The result"}


def failure(task: Task) -> tuple[str, str]:
    """Returns code and message."""
    details = task.details or {}
    if subject := _MODERATED.get(task.status):
        reasons = ", ".join(details.get("Moderation Reasons", []))
        return "moderation_blocked", f"{subject} was moderated" + (f": {reasons}" if reasons else "")
    return "generation_failed", str(details.get("error", "The task failed"))
