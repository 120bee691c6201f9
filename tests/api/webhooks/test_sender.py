"""What a sender says to a destination, and what it makes of each answer, however odd."""

from __future__ import annotations

import gzip
import time
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
from serve_app.webhooks.outbox import Delivery, DeliveryState, Outbox

Deliver: TypeAlias = Callable[..., Awaitable[Delivery]]
RESULT = new_result("results/x/1/image.jpeg", prompt="Küche in 東京 🍜", seed=2**63)


@pytest.mark.parametrize("secret", ["", "the secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
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
        Webhook(secret if secret.startswith("whsec_") else secret.encode()).verify(call.body, call.headers)
        assert secret not in f"{call.path}{call.headers}"
    else:
        assert signatures.isdisjoint(call.headers)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        *((status, DeliveryState.DELIVERED) for status in (200, 299)),
        *((status, DeliveryState.WAITING) for status in (300, 304, 401, 404, 429, 503)),
        (410, DeliveryState.FAILED),
    ],
)
async def test_status_decides_the_state(
    deliver: Deliver, destination: WebhookReceiver, status: int, state: DeliveryState
) -> None:
    destination.reply = http_response(status, b"" if status == 304 else b"no thanks")
    delivery = await deliver(destination.url())
    [attempt] = delivery.log
    assert (delivery.state, attempt.status, attempt.error) == (state, status, "")
    assert attempt.text == ("" if status == 304 else "no thanks")
    if state is DeliveryState.WAITING:
        assert delivery.next == pytest.approx(delivery.created + HOUR_S, abs=60)


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


async def test_redirect_is_not_followed(
    deliver: Deliver, destination: WebhookReceiver, other_destination: WebhookReceiver
) -> None:
    for status in (301, 307):
        destination.reply = http_response(status, location=other_destination.url())
        delivery = await deliver(destination.url())
        assert (delivery.state, delivery.log[0].status) == (DeliveryState.WAITING, status)
    assert other_destination.connections == 0


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


async def test_host_is_called_at_the_checked_address(deliver: Deliver, destination: WebhookReceiver) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        assert (host, port) == ("hooks.test", destination.port)
        return ["127.0.0.1"]

    await deliver(destination.url(host="hooks.test"), guard=UrlGuard(LOOPBACK, resolve))
    [call] = destination.received
    assert call.headers["host"] == f"hooks.test:{destination.port}"


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


async def test_object_store_outage_costs_an_attempt_without_blame(
    deliver: Deliver, store: TaskStore, destination: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = make_outbox(
        store, schedule_s=(QUICK_S,), jitter=0, failure_threshold=1, circuit_open_s=HOUR_S, max_circuit_open_s=HOUR_S
    )
    body, away = ResultSerializer.body, iter([True])

    async def fail(self: ResultSerializer, task: Task, base: str) -> dict[str, Any]:
        if next(away, False):
            raise GenericError("away")
        return await body(self, task, base)

    monkeypatch.setattr(ResultSerializer, "body", fail)
    delivery = await deliver(destination.url(), 2, outbox, result=RESULT)
    first, second = delivery.log
    assert (first.status, second.status, delivery.state) == (None, 204, DeliveryState.DELIVERED)
    assert "object store" in first.error
    assert len(destination.received) == 1


async def test_exception_in_the_sender_keeps_the_retry_schedule(
    deliver: Deliver, store: TaskStore, destination: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = make_outbox(store, schedule_s=(QUICK_S, HOUR_S), jitter=0, failure_threshold=1)

    async def fail(self: ResultSerializer, task: Task, base: str) -> dict[str, Any]:
        raise AttributeError("foreign")

    monkeypatch.setattr(ResultSerializer, "body", fail)
    delivery = await deliver(destination.url(), 2, outbox, result=RESULT)
    assert [attempt.error for attempt in delivery.log] == ["the sender failed; its log says why"] * 2
    assert (delivery.state, delivery.attempts, destination.connections) == (DeliveryState.WAITING, 2, 0)
    assert delivery.next is not None
    assert delivery.next - time.time() == pytest.approx(HOUR_S, abs=60)
    health = await store.redis.exists(f"{store.prefix}destination:{destination_id(destination.url())}")
    assert not health, "the destination is not to blame"


BROKE = "the connection broke, or what came was not HTTP"
LONG_HEAD = "its answer has more than 16 KiB of headers"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
BAD: dict[str, tuple[Reply, str]] = {
    "is silent": (never_answer, "no answer within 2 s"),
    "is no web server": (b"SSH-2.0-OpenSSH_9.6\r\n", BROKE),
    "endless head": (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000, LONG_HEAD),
    "endless line": (b"HTTP/1.1 200 " + b"x" * 1_000_000, LONG_HEAD),
    "endless interim answers": (b"HTTP/1.1 103 Early\r\n\r\n" * 100_000, LONG_HEAD),
}


@pytest.mark.parametrize(("reply", "error"), BAD.values(), ids=BAD)
async def test_misbehaving_destination_is_retried(
    deliver: Deliver, store: TaskStore, destination: WebhookReceiver, reply: Reply, error: str
) -> None:
    outbox = make_outbox(store, schedule_s=(QUICK_S,), timeout_s=2 if reply is never_answer else 60)
    destination.replies = [reply]
    delivery = await deliver(destination.url(), 2, outbox)
    first, second = delivery.log
    assert (first.status, first.error, second.status) == (None, error, 204)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (stall_after_head, ""),
        (cut_off, "only this"),
        (CHUNKED + b"1\r\nx\r\n" * 100_000, None),
        (CHUNKED + b"zz\r\n", ""),
    ],
    ids=["late", "breaks off", "endless tiny chunks", "bad chunk"],
)
async def test_status_decides_despite_a_broken_body(
    deliver: Deliver, destination: WebhookReceiver, reply: Reply, text: str | None
) -> None:
    destination.reply = reply
    delivery = await deliver(destination.url())
    [attempt] = delivery.log
    assert (delivery.state, attempt.status, attempt.error) == (DeliveryState.DELIVERED, 200, "")
    assert text is None or attempt.text == text


@pytest.mark.parametrize(
    ("reply", "text"),
    [(stream_forever, "x" * 1024), (http_response(200, b"\xff\x00" + "é".encode() * 2000), "\ufffd\x00" + "é" * 511)],
    ids=["endless", "long"],
)
async def test_long_answer_is_truncated(
    deliver: Deliver, destination: WebhookReceiver, reply: Reply, text: str
) -> None:
    destination.reply = reply
    delivery = await deliver(destination.url())
    assert (delivery.state, delivery.log[0].text) == (DeliveryState.DELIVERED, text)


async def test_encoded_answer_is_never_decompressed(deliver: Deliver, destination: WebhookReceiver) -> None:
    endless_name = b"\x1f\x8b\x08\x08" + bytes(6) + b"x" * 100_000_000  # yields nothing, however much there is
    packed = gzip.compress(gzip.compress(endless_name, 9), 9)
    for body, encoding in ((gzip.compress(bytes(100_000_000), 9), "gzip"), (packed, "gzip, gzip, gzip")):
        destination.reply = http_response(200, body, content_encoding=encoding)
        tracemalloc.start()
        try:
            delivery = await deliver(destination.url())
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (delivery.state, delivery.log[0].status, delivery.log[0].text) == (DeliveryState.DELIVERED, 200, "")
        assert most < 10_000_000
