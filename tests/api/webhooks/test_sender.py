"""Calls of a sender to a destination, and the outcomes of its answers."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from obstore.exceptions import GenericError
from standardwebhooks import Webhook
from support.deliveries import BASE, HOUR_S, URL, destination_id, end_one_task, make_outbox
from support.payloads import new_result
from support.webhook_receiver import (
    Reply,
    WebhookReceiver,
    cut_off,
    http_response,
    never_answer,
    stall_after_head,
    stream_forever,
)
from support.webhook_senders import (
    LOOPBACK,
    PLAIN,
    QUICK_S,
    SEALER,
    make_sender,
    running,
    serializer,
    wait_for_attempts,
)

from serve_app.encryption import Sealer, new_key
from serve_app.inputs.ssrf import UrlGuard
from serve_app.tasks.serializer import ResultSerializer, encode_body
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Task
from serve_app.webhooks import sender
from serve_app.webhooks.outbox import Delivery, DeliveryState, DestinationHealth, Outbox
from serve_app.webhooks.sender import Answer, post

Deliver: TypeAlias = Callable[..., Awaitable[Delivery]]
RESULT = new_result("results/x/1/image.jpeg", prompt="Küche in 東京 🍜", seed=2**63)


async def call(destination: WebhookReceiver, reply: Reply, timeout_s: float = 60) -> Answer:
    destination.reply = reply
    async with UrlGuard(LOOPBACK).client() as client:
        return await post(client, destination.url(), b"{}", {}, timeout_s)


def test_status_decides_outcome_and_health() -> None:
    statuses = (None, 199, 200, 299, 300, 404, 428, 429, 430, 499, 500, 503)
    assert [status for status in statuses if Answer(status).delivered] == [200, 299]
    is_down = [status for status in statuses if Answer(status).health is DestinationHealth.DOWN]
    assert is_down == [None, 429, 500, 503]
    assert Answer(204).health is Answer(404).health is DestinationHealth.UP


BROKE = "the connection broke, or what came was not HTTP"
LONG_HEAD = "its answer has more than 16 KiB of headers"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LONG_TEXT = http_response(200, b"\xff\x00" + "é".encode() * 2000)
ANSWERS: dict[str, tuple[Reply, int | None, str, str]] = {
    "text": (http_response(404, b"no thanks"), 404, "", "no thanks"),
    "gone": (http_response(410), 410, "", ""),
    "silent": (never_answer, None, "no answer within 0.3 s", ""),
    "no web server": (b"SSH-2.0-OpenSSH_9.6\r\n", None, BROKE, ""),
    "endless head": (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000, None, LONG_HEAD, ""),
    "late body": (stall_after_head, 200, "", ""),
    "body breaks off": (cut_off, 200, "", "only this"),
    "tiny chunks": (CHUNKED + b"1\r\nx\r\n" * 100_000, 200, "", "x" * 257),
    "bad chunk": (CHUNKED + b"zz\r\n", 200, "", ""),
    "endless body": (stream_forever, 200, "", "x" * 1024),
    "long body": (LONG_TEXT, 200, "", "\ufffd\x00" + "é" * 511),
}


@pytest.mark.parametrize(("reply", "status", "error", "text"), ANSWERS.values(), ids=ANSWERS)
async def test_every_answer_has_a_status_or_a_reason(
    monkeypatch: pytest.MonkeyPatch,
    destination: WebhookReceiver,
    reply: Reply,
    status: int | None,
    error: str,
    text: str,
) -> None:
    if reply is stall_after_head:
        monkeypatch.setattr(sender, "_BODY_S", 0.1)
    answer = await call(destination, reply, timeout_s=0.3 if reply is never_answer else 60)
    assert (answer.status, answer.error, answer.text) == (status, error, text)
    assert answer.is_final == (status == 410)


async def test_encoded_answer_is_never_decompressed(destination: WebhookReceiver) -> None:
    reply = http_response(200, gzip.compress(bytes(30_000_000), 1), content_encoding="gzip")
    tracemalloc.start()
    try:
        answer = await call(destination, reply)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (answer.status, answer.text) == (200, "")
    assert peak < 5_000_000


async def test_redirect_is_not_followed(destination: WebhookReceiver, other_destination: WebhookReceiver) -> None:
    for status in (301, 307):
        answer = await call(destination, http_response(status, location=other_destination.url()))
        assert answer.status == status
    assert other_destination.connections == 0


@pytest.mark.parametrize("secret", ["", "the secret"])
async def test_request_of_a_delivery(
    deliver: Deliver, store: TaskStore, destination: WebhookReceiver, tmp_path: Path, secret: str
) -> None:
    sealed = SEALER.seal(secret) if secret else ""
    before = datetime.now(UTC).timestamp()
    delivery = await deliver(destination.url("/hook?of=ours"), secret=sealed, result=RESULT)
    assert (delivery.state, delivery.attempts) == (DeliveryState.DELIVERED, 1)
    assert [(attempt.status, attempt.error) for attempt in delivery.log] == [(204, "")]
    [call] = destination.received
    task = await store.reads.get(delivery.id)
    assert task is not None
    assert (call.path, call.id) == ("/hook?of=ours", delivery.id)
    assert call.body == encode_body(await serializer(tmp_path).body(task, BASE))
    assert "東京 🍜".encode() in call.body
    assert call.headers["content-type"] == "application/json"
    assert call.headers["user-agent"].startswith("gen-serve")
    assert int(before) <= int(call.headers["webhook-timestamp"]) <= datetime.now(UTC).timestamp()
    signatures = {"webhook-signature", PLAIN.lower()}
    if secret:
        assert signatures <= set(call.headers)
        Webhook(secret.encode()).verify(call.body, call.headers)
        assert secret not in f"{call.path}{call.headers}"
    else:
        assert signatures.isdisjoint(call.headers)


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_is_respected(deliver: Deliver, destination: WebhookReceiver, form: str) -> None:
    retry_after_s = 3 * HOUR_S
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=retry_after_s), usegmt=True)
    destination.reply = http_response(404, retry_after=f"{retry_after_s:.0f}" if form == "seconds" else date)
    delivery = await deliver(destination.url())
    assert delivery.next == pytest.approx(delivery.created + retry_after_s, abs=60)


async def test_attempts_share_id_and_body_but_not_signature(
    deliver: Deliver, store: TaskStore, destination: WebhookReceiver
) -> None:
    outbox = make_outbox(store, schedule_s=(QUICK_S, QUICK_S))
    destination.replies = [http_response(500, b"oops"), b"SSH-2.0\r\n", http_response(404)]
    delivery = await deliver(destination.url(), 3, outbox, secret=SEALER.seal("the secret"), result=RESULT)
    assert (delivery.state, delivery.attempts) == (DeliveryState.FAILED, 3)
    assert [attempt.status for attempt in delivery.log] == [500, None, 404]
    assert destination.ids == [delivery.id] * 3
    assert len({call.body.partition(b"?se=")[0] for call in destination.received}) == 1
    for call in destination.received:
        Webhook(b"the secret").verify(call.body, call.headers)


async def test_host_that_became_private_is_not_called(deliver: Deliver, destination: WebhookReceiver) -> None:
    answers = [["93.184.215.14"], ["127.0.0.1"], ["93.184.215.14", "127.0.0.1"]]

    async def resolve(host: str, port: int) -> list[str]:
        return answers.pop(0)

    guard = UrlGuard(resolve=resolve)
    url = destination.url(host="rebound.test")
    await guard.check(url)  # as at submission
    for _ in range(2):
        delivery = await deliver(url, guard=UrlGuard(resolve=resolve))
        [attempt] = delivery.log
        assert (attempt.status, attempt.error) == (None, "the host of the URL is not on the public internet")
        assert delivery.state is DeliveryState.WAITING
    assert (destination.connections, answers) == (0, [])


async def test_unreadable_secret_fails_without_blame(
    deliver: Deliver, store: TaskStore, destination: WebhookReceiver
) -> None:
    key = f"{store.prefix}destination:{destination_id(destination.url())}"
    health = {"failures": "5", "times_opened": "3", "open_until": "1"}
    await store.redis.hset(key, mapping=health)  # type: ignore[misc]
    delivery = await deliver(destination.url(), secret=Sealer([new_key()]).seal("lost"))
    assert (delivery.state, "sealing.keys" in delivery.log[0].error) == (DeliveryState.FAILED, True)
    assert destination.connections == 0
    assert await store.redis.hgetall(key) == health  # type: ignore[misc]


async def test_delivery_of_a_deleted_task_fails(store: TaskStore, outbox: Outbox, tmp_path: Path) -> None:
    task_id = await end_one_task(store, URL)
    await store.redis.delete(f"{store.prefix}task:{task_id}")
    async with running(make_sender(outbox, store, tmp_path)):
        delivery = await wait_for_attempts(outbox, task_id)
    assert (delivery.state, delivery.log[0].error) == (DeliveryState.FAILED, "the task is no longer kept")


@pytest.mark.parametrize(
    ("problem", "error"),
    [(GenericError("away"), "object store"), (AttributeError("foreign"), "the sender failed; its log says why")],
    ids=["object store", "own bug"],
)
async def test_fault_of_the_sender_costs_an_attempt_without_blame(
    deliver: Deliver,
    store: TaskStore,
    destination: WebhookReceiver,
    monkeypatch: pytest.MonkeyPatch,
    problem: Exception,
    error: str,
) -> None:
    outbox = make_outbox(store, schedule_s=(QUICK_S,), jitter=0, failure_threshold=1, circuit_open_s=HOUR_S)
    body, fails = ResultSerializer.body, iter([True])

    async def fail_once(self: ResultSerializer, task: Task, base: str) -> dict[str, Any]:
        if next(fails, False):
            raise problem
        return await body(self, task, base)

    monkeypatch.setattr(ResultSerializer, "body", fail_once)
    delivery = await deliver(destination.url(), 2, outbox, result=RESULT)
    first, second = delivery.log
    assert (first.status, second.status, delivery.state) == (None, 204, DeliveryState.DELIVERED)
    assert error in first.error
    assert len(destination.received) == 1
