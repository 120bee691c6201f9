"""What the receiver of a webhook gets: what polling answers, and never a secret."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from redis import Redis as RawRedis
from standardwebhooks import Webhook
from support.client import Client
from support.hooked_tasks import replay, send
from support.http_service import Service
from support.pictures import picture
from support.promises import promise
from support.website import Website
from support.worker import Worker

from serve_app.encryption import Sealer
from serve_app.tasks.task import Status

SECRET = "whsec_" + base64.b64encode(b"known to the receiver and to us!").decode()
PROMPT = 'Küche in 東京 🍜, "quoted"'


def polled_around(service: Service, client: Client, task_id: str) -> list[bytes]:
    """What polling answers before and after all is sent: a link may be signed anew in between."""
    before = client.poll(task_id).content
    send(service)
    return [before, client.poll(task_id).content]


@promise(
    "Events",
    "The webhook payload is identical in shape to the polling response. The status value for success is `Ready`.",
)
@pytest.mark.parametrize("statuses", ["full", "basic"])
def test_the_webhook_of_a_picture_is_what_polling_answers(
    client: Client, worker: Worker, service: Service, hook: Website, statuses: str
) -> None:
    worker.set_project(client.project, statuses=statuses)
    task_id = client.accepted(prompt=PROMPT, webhook_url=hook.url("/done"), webhook_secret=SECRET)
    data = picture(form="JPEG")
    worker.deliver(task_id, data)
    polled = polled_around(service, client, task_id)
    [(headers, body)] = hook.received
    assert body in polled
    assert Webhook(SECRET).verify(body, headers) == json.loads(body)
    result = json.loads(body)["result"]
    assert result["prompt"] == PROMPT
    assert PROMPT.partition(",")[0].encode() in body, "as text, and not in escapes"
    assert client.get(result["sample"]).content == data


OUTCOMES: dict[str, tuple[Status, dict[str, Any]]] = {
    "error": (Status.ERROR, {"error": "größer als erlaubt"}),
    "request": (Status.REQUEST_MODERATED, {"Moderation Reasons": ["Derivative Works Filter", "Nacktheit: näher"]}),
    "content": (Status.CONTENT_MODERATED, {"Moderation Reasons": ["Content"]}),
}


@promise("Events", "The webhook payload is identical in shape to the polling response.")
@pytest.mark.parametrize(("status", "details"), OUTCOMES.values(), ids=OUTCOMES)
def test_the_webhook_of_any_other_end_is_what_polling_answers(
    client: Client, worker: Worker, service: Service, hook: Website, status: Status, details: dict[str, Any]
) -> None:
    task_id = client.accepted(webhook_url=hook.url("/done"), webhook_secret="some words")
    worker.end(task_id, status, details=details)
    before, after = polled_around(service, client, task_id)
    [(headers, body)] = hook.received
    assert body == before == after
    assert (json.loads(body)["status"], json.loads(body)["details"]) == (status.value, details)
    Webhook(b"some words").verify(body, headers)
    assert headers["webhook-id"] == task_id
    assert headers["x-webhook-signature"].startswith("sha256=")


def written(text: str) -> str:
    """As `stored` shows it."""
    return repr(text.encode())[2:-1]


def stored(service: Service) -> str:
    """All keys that the service has in Redis, with their values. A dump would not do: it is compressed."""
    redis = RawRedis.from_url(service.settings.redis_url)
    readers: dict[bytes, Callable[[bytes], Any]] = {
        b"string": redis.get,
        b"hash": redis.hgetall,
        b"list": lambda key: redis.lrange(key, 0, -1),
        b"set": redis.smembers,
        b"zset": lambda key: redis.zrange(key, 0, -1),
        b"stream": redis.xrange,
        b"none": lambda key: None,  # it has just expired
    }
    try:
        keys: Any = redis.scan_iter(f"{service.settings.redis.prefix}*", count=10_000)
        return repr([(key, readers[cast(bytes, redis.type(key))](key)) for key in keys])
    finally:
        redis.close()


@pytest.mark.parametrize("secret", [SECRET, "correct horse battery staple", "ключ 鍵"])
def test_a_secret_is_nowhere_to_be_found(
    client: Client, worker: Worker, service: Service, hook: Website, secret: str
) -> None:
    hook.put("/done", status=500)
    submitted = client.submit(webhook_url=hook.url("/done"), webhook_secret=secret, prompt="the key of it")
    task_id = submitted.json()["id"]
    worker.end(task_id, Status.ERROR)
    send(service)
    answers = [
        submitted,
        client.poll(task_id),
        client.get("/v1/tasks"),
        client.get(f"/v1/tasks/{task_id}/deliveries"),
        replay(client, task_id),
    ]
    forms = {secret, secret.removeprefix("whsec_"), json.dumps(secret)[1:-1]}
    task = worker.run(worker.tasks.get(task_id))
    assert task is not None
    assert task.webhook is not None
    sealed = task.webhook.secret
    for answer in answers:
        assert answer.status_code == 200
        assert not any(form in answer.text for form in (*forms, sealed))
    looked_at = stored(service)
    assert written(sealed) in looked_at, "the search looks at the right values"
    assert not any(written(form) in looked_at for form in forms)
    assert Sealer(service.settings.sealing_keys).open(sealed) == secret
    assert secret not in repr(task)
    [(headers, body)] = hook.received
    assert secret.encode() not in repr(headers).encode() + body
