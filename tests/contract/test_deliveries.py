"""How the webhook of a task fares, as its project sees it, and what the receiver gets."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from picture_web import picture
from redis import Redis as RawRedis
from running_service import HOOK, HOOK_HOST, Client, Service, Worker, problems, refusal, running
from standardwebhooks import Webhook

from serve_app.accounts.roles import Role
from serve_app.config.settings import TaskSettings, WebhookSettings
from serve_app.loops import Loops
from serve_app.media.url_guard import UrlGuard, receiver_of
from serve_app.tasks.presentation import Presenter
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status
from serve_app.webhooks.outbox import Outbox, State
from serve_app.webhooks.sealing import Sealer
from serve_app.webhooks.sender import Sender

MANY = 1_000_000
SECRET = "whsec_" + base64.b64encode(b"known to the receiver and to us!").decode()
PROMPT = 'Küche in 東京 🍜, "quoted"'


class Hook:
    """Plays `hooks.test`: answers `status` to everything, and notes it."""

    def __init__(self) -> None:
        self.port = 0
        self.status = 204
        self.answer = b""
        self.received: list[tuple[dict[str, str], bytes]] = []

    def url(self) -> str:
        return f"http://{HOOK_HOST}:{self.port}/done"


@pytest.fixture(scope="module")
def service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One of its own: a sender here must not see what other tests leave in the outbox."""
    tasks = TaskSettings(max_ready=MANY, lease_s=3600, requests_per_s=MANY, burst=MANY)
    webhooks = WebhookSettings(schedule_s=(3600, 3600), jitter=0, trips_after=MANY)
    folder = tmp_path_factory.mktemp("deliveries")
    with running(folder, redis_url, repository, tasks=tasks, webhooks=webhooks) as service:
        yield service


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            hook.received.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(hook.status)
            self.send_header("Content-Length", str(len(hook.answer)))
            self.end_headers()
            self.wfile.write(hook.answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hook.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hook
        finally:
            server.shutdown()
            thread.join()


def send(service: Service) -> None:
    """Makes every delivery that is due, as the service's own sender would."""
    settings = service.settings
    shared = service.app.state.services

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async def all_are_tried() -> None:
        tasks = TaskStore(service.worker.tasks.redis, settings.redis.prefix, settings.tasks.limits())
        outbox = Outbox(tasks.redis, settings.redis.prefix, settings.webhooks.policy())
        presenter = Presenter(service.worker.objects, shared.links, settings.links.image_life_s)
        guard = UrlGuard([HOOK_HOST], resolve)
        headers = settings.webhooks.signature_headers
        sender = Sender(outbox, tasks, presenter, Sealer(settings.webhook_keys), guard, headers)
        loops = Loops({"send": sender.send})
        try:
            async with asyncio.timeout(40):
                while await _due(outbox):
                    await asyncio.sleep(0.01)
        finally:
            await sender.drain()
            for task in loops._tasks:
                while not task.done():
                    task.cancel()
                    await asyncio.wait([task], timeout=0.5)

    service.worker.run(all_are_tried())


async def _due(outbox: Outbox) -> bool:
    deliveries, _ = await outbox.list_deliveries(limit=1000)
    return any(delivery.state is State.SENDING or not delivery.attempts for delivery in deliveries)


@pytest.fixture(autouse=True)
def _apart(service: Service) -> Iterator[None]:
    """No test finds what another one left on its way."""
    yield
    redis, prefix = service.worker.tasks.redis, service.settings.redis.prefix

    async def empty() -> None:
        for pattern in ("outbox*", "deliver*"):
            async for key in redis.scan_iter(f"{prefix}{pattern}", count=10_000):
                await redis.delete(key)

    service.worker.run(empty())


def deliveries(client: Client, task_id: str) -> dict[str, Any]:
    response = client.get(f"/v1/tasks/{task_id}/deliveries")
    assert response.status_code == 200, response.text
    return response.json()


def replay(client: Client, task_id: str) -> Any:
    return client.post(f"/v1/tasks/{task_id}/deliveries/replay")


def ended(client: Client, worker: Worker, url: str, **body: Any) -> str:
    task_id = client.accepted(webhook_url=url, **body)
    worker.end(task_id, Status.ERROR, details={"error": "no luck"})
    return task_id


# What is told.


def test_nothing_is_due_before_the_end(client: Client, worker: Worker) -> None:
    task_id = client.accepted(webhook_url=HOOK)
    not_due = {"id": task_id, "receiver": receiver_of(HOOK), "state": "not due", "next": None, "attempts": []}
    assert deliveries(client, task_id) == not_due
    worker.advance(task_id, Status.GENERATING, progress=0.5)
    assert deliveries(client, task_id) == not_due


def test_it_waits_from_the_end_on(client: Client, worker: Worker) -> None:
    task_id = ended(client, worker, HOOK)
    told = deliveries(client, task_id)
    (task,) = client.get("/v1/tasks").json()["tasks"]
    assert told == {
        "id": task_id,
        "receiver": receiver_of(HOOK),
        "state": "waiting",
        "next": task["finished"],
        "attempts": [],
    }


def test_a_delivery_and_its_attempt(client: Client, worker: Worker, service: Service, hook: Hook) -> None:
    hook.status, hook.answer = 200, "danke schön".encode()
    task_id = ended(client, worker, hook.url())
    send(service)
    told = deliveries(client, task_id)
    (attempt,) = told.pop("attempts")
    assert told == {"id": task_id, "receiver": receiver_of(hook.url()), "state": "delivered", "next": None}
    assert attempt.pop("at") > 1_700_000_000
    assert attempt.pop("took_s") >= 0
    assert attempt == {"status": 200, "error": None, "response": "danke schön"}


def test_a_refusal_is_told_and_the_next_try_too(client: Client, worker: Worker, service: Service, hook: Hook) -> None:
    hook.status, hook.answer = 404, b"x" * 5000
    task_id = ended(client, worker, hook.url())
    send(service)
    told = deliveries(client, task_id)
    (attempt,) = told["attempts"]
    assert (told["state"], attempt["status"], attempt["response"]) == ("waiting", 404, "x" * 1024)
    assert told["next"] == pytest.approx(attempt["at"] + 3600, abs=60)


def test_what_was_given_up_is_failed(client: Client, worker: Worker, service: Service, hook: Hook) -> None:
    hook.status = 410
    task_id = ended(client, worker, hook.url())
    send(service)
    told = deliveries(client, task_id)
    assert (told["state"], told["next"], len(told["attempts"])) == ("failed", None, 1)


def test_a_receiver_that_is_not_there_has_no_status(
    client: Client, worker: Worker, service: Service, hook: Hook
) -> None:
    task_id = ended(client, worker, f"http://{HOOK_HOST}:1/")
    send(service)
    (attempt,) = deliveries(client, task_id)["attempts"]
    assert (attempt["status"], attempt["error"], attempt["response"]) == (None, "could not connect", None)


def test_a_cancelled_task_is_told_of_too(client: Client, service: Service, hook: Hook) -> None:
    task_id = client.accepted(webhook_url=hook.url())
    assert client.delete(f"/v1/tasks/{task_id}").status_code == 200
    send(service)
    assert deliveries(client, task_id)["state"] == "delivered"
    [(_, body)] = hook.received
    assert json.loads(body)["details"] == {"error": "Cancelled by the client"}


# What the receiver gets.


def polled_around(service: Service, client: Client, task_id: str) -> list[bytes]:
    """What polling answers before and after all is sent: a link may be signed anew in between."""
    before = client.poll(task_id).content
    send(service)
    return [before, client.poll(task_id).content]


@pytest.mark.parametrize("statuses", ["full", "basic"])
def test_the_webhook_of_a_picture_is_what_polling_answers(
    client: Client, worker: Worker, service: Service, hook: Hook, statuses: str
) -> None:
    worker.set_project(client.project, statuses=statuses)
    task_id = client.accepted(prompt=PROMPT, webhook_url=hook.url(), webhook_secret=SECRET)
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


@pytest.mark.parametrize(("status", "details"), OUTCOMES.values(), ids=OUTCOMES)
def test_the_webhook_of_any_other_end_is_what_polling_answers(
    client: Client, worker: Worker, service: Service, hook: Hook, status: Status, details: dict[str, Any]
) -> None:
    task_id = client.accepted(webhook_url=hook.url(), webhook_secret="some words")
    worker.end(task_id, status, details=details)
    before, after = polled_around(service, client, task_id)
    [(headers, body)] = hook.received
    assert body == before == after
    assert (json.loads(body)["status"], json.loads(body)["details"]) == (status.value, details)
    Webhook(b"some words").verify(body, headers)
    assert headers["webhook-id"] == task_id
    assert headers["x-webhook-signature"].startswith("sha256=")


# Sending again.


def test_what_was_delivered_can_be_sent_again(client: Client, worker: Worker, service: Service, hook: Hook) -> None:
    task_id = ended(client, worker, hook.url())
    send(service)
    answer = replay(client, task_id)
    assert answer.status_code == 200
    assert answer.json() == deliveries(client, task_id)
    assert answer.json()["state"] == "waiting"
    assert len(answer.json()["attempts"]) == 1
    send(service)
    assert deliveries(client, task_id)["state"] == "delivered"
    assert [headers["webhook-id"] for headers, _ in hook.received] == [task_id] * 2


def test_what_was_given_up_can_be_sent_again(client: Client, worker: Worker, service: Service, hook: Hook) -> None:
    hook.status = 410
    task_id = ended(client, worker, hook.url())
    send(service)
    hook.status = 204
    assert replay(client, task_id).json()["state"] == "waiting"
    send(service)
    told = deliveries(client, task_id)
    assert (told["state"], [attempt["status"] for attempt in told["attempts"]]) == ("delivered", [410, 204])


def test_there_is_nothing_to_send_before_the_end(client: Client) -> None:
    task_id = client.accepted(webhook_url=HOOK)
    assert "not ended" in refusal(replay(client, task_id), 409)
    assert deliveries(client, task_id)["state"] == "not due"


# Who may.


def test_tasks_of_others_and_unknown_ones_look_the_same(
    client: Client, other_client: Client, worker: Worker, service: Service
) -> None:
    foreign = ended(other_client, worker, HOOK)
    with service.unchanged():
        for task_id in (foreign, "none"):
            for response in (client.get(f"/v1/tasks/{task_id}/deliveries"), replay(client, task_id)):
                assert refusal(response, 404) == "There is no such task"
    assert deliveries(other_client, foreign)["state"] == "waiting"


def test_a_task_without_a_webhook_has_no_deliveries(client: Client, worker: Worker) -> None:
    waiting, over = client.accepted(), client.accepted()
    worker.end(over, Status.ERROR)
    for task_id in (waiting, over):
        for response in (client.get(f"/v1/tasks/{task_id}/deliveries"), replay(client, task_id)):
            assert refusal(response, 404) == "The task was submitted without webhook_url"


def test_an_id_that_is_too_long_is_refused(client: Client) -> None:
    for response in (client.get(f"/v1/tasks/{'x' * 65}/deliveries"), replay(client, "x" * 65)):
        assert problems(response) == [(["path", "task_id"], "string_too_long")]


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.OPERATOR])
def test_every_role_may_look_and_those_that_generate_may_send_again(
    client: Client, worker: Worker, service: Service, role: Role
) -> None:
    task_id = ended(client, worker, HOOK)
    may = role in (Role.ADMINISTRATOR, Role.DEVELOPER)
    with service.client(client.project, role=role) as other:
        assert deliveries(other, task_id)["state"] == "waiting"
        response = replay(other, task_id)
        if may:
            assert response.status_code == 200
        else:
            assert "no permission to generate" in refusal(response, 403)


@pytest.mark.parametrize("key", [None, "gen_wrong"])
def test_nobody_may_without_a_key(client: Client, worker: Worker, key: str | None) -> None:
    path = f"/v1/tasks/{ended(client, worker, HOOK)}/deliveries"
    with Client(str(client.base_url), "nobody", key or "") as nobody:
        refusal(nobody.get(path), 403)
        refusal(nobody.post(f"{path}/replay"), 403)


# Secrets.


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
    client: Client, worker: Worker, service: Service, hook: Hook, secret: str
) -> None:
    hook.status = 500
    submitted = client.submit(webhook_url=hook.url(), webhook_secret=secret, prompt="the key of it")
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
    assert Sealer(service.settings.webhook_keys).open(sealed) == secret
    assert secret not in repr(task)
    [(headers, body)] = hook.received
    assert secret.encode() not in repr(headers).encode() + body
