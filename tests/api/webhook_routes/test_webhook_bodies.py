"""What the destination of a webhook gets: what polling answers, and never a secret."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from standardwebhooks import Webhook
from support.delivery_routes import replay, send
from support.http_client import Client
from support.http_service import Service
from support.images import image_file
from support.promises import promise
from support.redis_dump import read_keys
from support.website import Website
from support.worker import Worker

from serve_app.encryption import Sealer
from serve_app.tasks.task import Status

SECRET = "whsec_" + base64.b64encode(b"known to the destination and to us!").decode()


OUTCOMES: dict[str, tuple[Status, dict[str, Any] | None]] = {
    "ready": (Status.READY, None),
    "error": (Status.ERROR, {"error": "größer als erlaubt"}),
    "content": (Status.CONTENT_MODERATED, {"Moderation Reasons": ["Content"]}),
}


@promise(
    "Events",
    "The webhook payload is identical in shape to the polling response. The status value for success is `Ready`.",
)
@pytest.mark.parametrize(("status", "details"), OUTCOMES.values(), ids=OUTCOMES)
def test_a_webhook_is_what_polling_answers(
    client: Client, worker: Worker, service: Service, hook: Website, status: Status, details: dict[str, Any] | None
) -> None:
    task_id = client.create_task(webhook_url=hook.url("/done"), webhook_secret="some words")
    if status is Status.READY:
        worker.deliver(task_id, image_file(form="JPEG"))
    else:
        worker.end(task_id, status, details=details)
    before = client.poll(task_id).content
    send(service)
    [(headers, body)] = hook.received
    assert body in (before, client.poll(task_id).content), "a link may be signed anew in between"
    assert (json.loads(body)["status"], json.loads(body).get("details")) == (status.value, details)
    Webhook(b"some words").verify(body, headers)
    assert headers["webhook-id"] == task_id
    assert headers["x-webhook-signature"].startswith("sha256=")


@pytest.mark.parametrize("secret", [SECRET, "ключ 鍵"])
def test_a_secret_is_nowhere_to_be_found(
    client: Client, worker: Worker, service: Service, hook: Website, secret: str
) -> None:
    hook.set_page("/done", status=500)
    submitted = client.submit(webhook_url=hook.url("/done"), webhook_secret=secret, prompt="the key of it")
    task_id = submitted.json()["id"]
    worker.end(task_id, Status.ERROR)
    send(service)
    paths = (f"/v1/tasks/{task_id}/deliveries", "/v1/tasks")
    answers = [submitted, client.poll(task_id), *map(client.get, paths), replay(client, task_id)]
    task = worker.run(worker.tasks.reads.get(task_id))
    assert task is not None
    assert task.webhook is not None
    sealed = task.webhook.secret
    forms = {secret, secret.removeprefix("whsec_"), json.dumps(secret)[1:-1]}
    for answer in answers:
        assert answer.status_code == 200
        assert not any(form in answer.text for form in (*forms, sealed))
    dump = repr(worker.run(read_keys(worker.tasks.redis, service.settings.redis.prefix)))
    assert sealed in dump, "the search looks at the right values"
    assert not any(form in dump for form in forms)
    assert Sealer(service.settings.sealing_keys).open(sealed) == secret
    assert secret not in repr(task)
    [(headers, body)] = hook.received
    assert secret.encode() not in repr(headers).encode() + body
