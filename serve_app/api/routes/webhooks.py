"""Routes of a task's webhook deliveries."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path

from serve_app.accounts.api_key_auth import Caller
from serve_app.api.auth import Generator, TaskReader
from serve_app.api.routes.schemas import DeliveryAttempt, TaskDelivery, errors
from serve_app.api.routes.tasks import find_task
from serve_app.api.services import Deps, Services
from serve_app.inputs.ssrf import parse_destination
from serve_app.tasks.task import Task, WebhookDestination
from serve_app.webhooks.outbox import Delivery

router = APIRouter(prefix="/v1/tasks/{task_id}/deliveries", tags=["tasks"])

TaskId = Annotated[str, Path(max_length=64)]


@router.get("", responses=errors(403, 404, 503))
async def get_deliveries(services: Deps, caller: TaskReader, task_id: TaskId) -> TaskDelivery:
    """Returns the state of a task's webhook and its attempts."""
    task = await _find(services, caller, task_id)
    return _view(task, await services.webhooks.get(task_id))


@router.post("/replay", responses=errors(403, 404, 409, 503))
async def replay_deliveries(services: Deps, caller: Generator, task_id: TaskId) -> TaskDelivery:
    """Sends a delivered or failed webhook again, at once and with the full retry schedule."""
    task = await _find(services, caller, task_id)
    if not await services.webhooks.replay(task_id):
        raise HTTPException(409, "There is no delivery yet: the task is unfinished")
    return _view(task, await services.webhooks.get(task_id))


async def _find(services: Services, caller: Caller, task_id: str) -> Task:
    task = await find_task(services, caller, task_id)
    if task.webhook is None:
        raise HTTPException(404, "The task was submitted without webhook_url")
    return task


def _view(task: Task, delivery: Delivery | None) -> TaskDelivery:
    assert task.webhook is not None
    webhook = task.webhook
    destination = (
        parse_destination(webhook.url) if webhook.url else WebhookDestination.decode(webhook.destination).origin
    )
    if delivery is None:
        return TaskDelivery(id=task.id, destination=destination, state="not due", next=None, attempts=[])
    attempts = [
        DeliveryAttempt(
            at=attempt.at,
            status=attempt.status,
            error=attempt.error or None,
            response=None if attempt.status is None else attempt.text,
            took_s=attempt.took_s,
        )
        for attempt in delivery.log
    ]
    return TaskDelivery(
        id=task.id,
        destination=destination,
        state=delivery.state.value,
        next=delivery.next,
        attempts=attempts,
    )
