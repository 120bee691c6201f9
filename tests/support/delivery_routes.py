"""Deliveries of a service that runs no sender: `send` makes them, the routes show them."""

from __future__ import annotations

from typing import Any

from serve_app.encryption import Sealer
from serve_app.inputs.ssrf import UrlGuard
from serve_app.tasks.serializer import ResultSerializer
from serve_app.tasks.task import Status
from serve_app.webhooks.outbox import DeliveryState, Outbox
from serve_app.webhooks.sender import Sender
from support.deliveries import until
from support.http_client import HOOK_HOST, Client
from support.http_service import Service
from support.webhook_senders import running
from support.worker import Worker


def send(service: Service) -> None:
    """Runs a sender until every due delivery was tried."""
    settings = service.settings
    shared = service.app.state.services

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async def all_are_tried() -> None:
        tasks, at_rest = service.worker.tasks, settings.at_rest()
        outbox = Outbox(tasks.redis, settings.redis.prefix, settings.webhooks, at_rest)
        serializer = ResultSerializer(service.worker.objects, shared.links, settings.links.image_life_s)
        sealer, headers = Sealer(settings.sealing_keys), settings.webhooks.signature_headers
        sender = Sender(outbox, tasks, serializer, sealer, UrlGuard([HOOK_HOST], resolve), headers)

        async def none_is_due() -> bool:
            all_, _ = await outbox.list_deliveries(limit=1000)
            return all(each.state is not DeliveryState.SENDING and each.attempts for each in all_)

        async with running(sender):
            await until(none_is_due)

    service.worker.run(all_are_tried())


def deliveries(client: Client, task_id: str) -> dict[str, Any]:
    response = client.get(f"/v1/tasks/{task_id}/deliveries")
    assert response.status_code == 200, response.text
    return response.json()


def replay(client: Client, task_id: str) -> Any:
    return client.post(f"/v1/tasks/{task_id}/deliveries/replay")


def end_task(client: Client, worker: Worker, url: str, **body: Any) -> str:
    task_id = client.create_task(webhook_url=url, **body)
    worker.end(task_id, Status.ERROR, details={"error": "no luck"})
    return task_id
