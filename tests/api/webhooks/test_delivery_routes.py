"""Webhooks as clients see them: calls at the destination, and the routes of deliveries."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from standardwebhooks import Webhook
from support.delivery_routes import deliveries, end_task, replay, send
from support.http_client import HOOK, HOOK_HOST, Client, refusal
from support.http_service import Service, running
from support.images import image_file
from support.promises import promise
from support.redis_dump import read_keys
from support.website import Website, serving
from support.worker import Worker

from serve_app.config.settings import TaskSettings, WebhookSettings
from serve_app.encryption import Sealer
from serve_app.inputs.ssrf import parse_destination
from serve_app.tasks.task import Status

MANY = 1_000_000
WHSEC = "whsec_" + base64.b64encode(b"known to the destination and to us!").decode()


@pytest.fixture(scope="module")
def service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of this module: its senders must not see deliveries of other tests."""
    tasks = TaskSettings(max_queued=MANY, lease_s=3600, requests_per_s=MANY, burst=MANY)
    webhooks = WebhookSettings(schedule_s=(3600, 3600), jitter=0, failure_threshold=MANY)
    folder = tmp_path_factory.mktemp("deliveries")
    with running(folder, redis_url, repository, tasks=tasks, webhooks=webhooks) as service:
        yield service


@pytest.fixture
def hook() -> Iterator[Website]:
    """Serves `hooks.test` and accepts calls to `/done`."""
    with serving(HOOK_HOST) as site:
        site.set_page("/done", status=204)
        yield site


@pytest.fixture(autouse=True)
def _empty_outbox(service: Service) -> Iterator[None]:
    yield
    redis, prefix = service.worker.tasks.redis, service.settings.redis.prefix

    async def empty() -> None:
        for pattern in ("outbox*", "deliver*"):
            async for key in redis.scan_iter(f"{prefix}{pattern}", count=10_000):
                await redis.delete(key)

    service.worker.run(empty())


@promise("Decided: webhooks", "written to a durable outbox in the same step that makes the task terminal")
def test_webhook_waits_from_the_end_of_the_task(client: Client, worker: Worker) -> None:
    task_id = end_task(client, worker, HOOK)
    early = client.create_task(webhook_url=HOOK)
    assert "unfinished" in refusal(replay(client, early), 409)
    assert deliveries(client, early)["state"] == "not due"
    finished = {task["id"]: task["finished"] for task in client.get("/v1/tasks").json()["tasks"]}
    expected = {
        "id": task_id,
        "destination": parse_destination(HOOK),
        "state": "waiting",
        "next": finished[task_id],
        "attempts": [],
    }
    assert deliveries(client, task_id) == expected


@promise(
    "Events",
    "The webhook payload is identical in shape to the polling response. The status value for success is `Ready`.",
)
@promise("Decided: webhooks", "Deliveries and attempts can be listed and replayed by the operator.")
def test_delivery_lists_its_attempts_and_can_be_replayed(
    client: Client, worker: Worker, service: Service, hook: Website
) -> None:
    hook.set_page("/done", "danke schön".encode(), 200)
    task_id = client.create_task(webhook_url=hook.url("/done"), webhook_secret="some words")
    worker.deliver(task_id, image_file(form="JPEG"))
    before = client.poll(task_id).content
    send(service)
    [(headers, body)] = hook.received
    assert body in (before, client.poll(task_id).content), "links may be signed anew between the polls"
    assert json.loads(body)["status"] == "Ready"
    Webhook(b"some words").verify(body, headers)
    assert headers["x-webhook-signature"].startswith("sha256=")
    delivery = deliveries(client, task_id)
    (attempt,) = delivery.pop("attempts")
    destination = parse_destination(hook.url("/done"))
    assert delivery == {"id": task_id, "destination": destination, "state": "delivered", "next": None}
    assert attempt.pop("at") > 1_700_000_000
    assert 0 <= attempt.pop("took_s") < 60
    assert attempt == {"status": 200, "error": None, "response": "danke schön"}
    answer = replay(client, task_id)
    assert answer.json() == deliveries(client, task_id)
    assert (answer.status_code, answer.json()["state"], len(answer.json()["attempts"])) == (200, "waiting", 1)
    send(service)
    assert deliveries(client, task_id)["state"] == "delivered"
    assert [headers["webhook-id"] for headers, _ in hook.received] == [task_id] * 2


@promise("Decided: webhooks", "2xx within 15 s is success; anything else (3xx too) is retried")
def test_failed_attempt_shows_its_reason_and_the_next(
    client: Client, worker: Worker, service: Service, hook: Website
) -> None:
    hook.set_page("/done", b"x" * 5000, 404)
    ids = [end_task(client, worker, url) for url in (hook.url("/done"), f"http://{HOOK_HOST}:1/")]
    send(service)
    rejected, refused = (deliveries(client, task_id) for task_id in ids)
    (attempt,) = rejected["attempts"]
    assert (rejected["state"], attempt["status"], attempt["response"]) == ("waiting", 404, "x" * 1024)
    assert rejected["next"] == pytest.approx(attempt["at"] + 3600, abs=60)
    (attempt,) = refused["attempts"]
    assert (attempt["status"], attempt["error"], attempt["response"]) == (None, "the connection was refused", None)


@pytest.mark.parametrize("secret", [WHSEC, "ключ 鍵"], ids=["whsec", "text"])
def test_webhook_secret_is_never_shown_or_stored_in_clear(
    client: Client, worker: Worker, service: Service, hook: Website, secret: str
) -> None:
    hook.set_page("/done", status=500)
    submitted = client.submit(webhook_url=hook.url("/done"), webhook_secret=secret)
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


def test_deliveries_of_others_look_like_unknown_ones(
    client: Client, other_client: Client, worker: Worker, service: Service
) -> None:
    foreign = end_task(other_client, worker, HOOK)
    with service.assert_unchanged():
        for task_id in (foreign, "none"):
            for response in (client.get(f"/v1/tasks/{task_id}/deliveries"), replay(client, task_id)):
                assert refusal(response, 404) == "Task not found"


def test_destination_belongs_to_one_organization(client: Client, service: Service) -> None:
    def destination(client: Client, url: str) -> str:
        task = service.worker.run(service.worker.tasks.reads.get(client.create_task(webhook_url=url)))
        assert task is not None
        assert task.webhook is not None
        return task.webhook.destination

    with service.client(organization=service.worker.new_organization(100)) as stranger:
        assert destination(client, HOOK) == destination(client, f"{HOOK}/elsewhere") != destination(stranger, HOOK)
