"""What a sender says to a receiver, and what it makes of each answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from obstore.exceptions import GenericError
from standardwebhooks import Webhook
from support.deliveries import BASE, HOUR_S, URL, one_ended, outbox_of
from support.receiver import Receiver, breaks_off, http
from support.sender import LOOPBACK, PLAIN, QUICK_S, SEALER, attempted, outcome_of, presenter, running, sender_of

from serve_app.inputs.url_guard import UrlGuard
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status, Task
from serve_app.tasks.views import Presenter, encoded
from serve_app.webhooks.outbox import Outbox, State

RESULT = {"key": "results/x/1/picture.jpeg", "prompt": "Küche in 東京 🍜", "seed": 2**63}


@pytest.fixture
def outbox(store: TaskStore) -> Outbox:
    """A failed attempt is followed by two others, in an hour."""
    return outbox_of(store, schedule_s=(HOUR_S, HOUR_S), jitter=0, timeout_s=60)


@pytest.mark.parametrize("secret", ["", "the secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
async def test_what_is_sent(store: TaskStore, outbox: Outbox, receiver: Receiver, tmp_path: Path, secret: str) -> None:
    sealed = SEALER.seal(secret) if secret else ""
    url = receiver.url("/hook?of=ours")
    task_id = await one_ended(store, url, secret=sealed, result=RESULT)
    before = datetime.now(UTC).timestamp()
    async with running(sender_of(outbox, store, tmp_path)):
        [delivery] = await outcome_of(outbox, [task_id])
    assert (delivery.state, delivery.attempts) == (State.DELIVERED, 1)
    assert [(attempt.status, attempt.error) for attempt in delivery.log] == [(204, "")]

    [call] = receiver.received
    task = await store.get(task_id)
    assert task is not None
    assert call.path == "/hook?of=ours"
    assert call.body == encoded(await presenter(tmp_path).body(task, BASE))
    assert "東京 🍜".encode() in call.body
    assert call.headers["content-type"] == "application/json"
    assert call.headers["user-agent"].startswith("gen-serve")
    assert call.id == task_id
    assert int(before) <= int(call.headers["webhook-timestamp"]) <= datetime.now(UTC).timestamp()
    signatures = {"webhook-signature", PLAIN.lower()}
    if secret:
        assert signatures <= set(call.headers)
        key = secret if secret.startswith("whsec_") else secret.encode()
        Webhook(key).verify(call.body, call.headers)
    else:
        assert signatures.isdisjoint(call.headers)
    if secret:
        assert secret not in f"{call.path}{call.headers}"
    assert "cookie" not in call.headers
    assert "authorization" not in call.headers


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_any_2xx_is_a_delivery(
    store: TaskStore, outbox: Outbox, receiver: Receiver, tmp_path: Path, status: int
) -> None:
    receiver.reply = http(status)
    task_id = await one_ended(store, receiver.url())
    async with running(sender_of(outbox, store, tmp_path)):
        [delivery] = await outcome_of(outbox, [task_id])
    assert (delivery.state, delivery.log[0].status) == (State.DELIVERED, status)
    assert len(receiver.received) == 1


@pytest.mark.parametrize("status", [300, 304, 400, 401, 404, 409, 429, 500, 503])
async def test_any_other_answer_is_followed_by_another_try(
    store: TaskStore, outbox: Outbox, receiver: Receiver, tmp_path: Path, status: int
) -> None:
    receiver.reply = http(status, b"" if status == 304 else b"no thanks")
    task_id = await one_ended(store, receiver.url())
    async with running(sender_of(outbox, store, tmp_path)):
        delivery = await attempted(outbox, task_id)
    [attempt] = delivery.log
    assert (delivery.state, attempt.status, attempt.error) == (State.WAITING, status, "")
    assert attempt.text == ("" if status == 304 else "no thanks")
    assert delivery.next == pytest.approx(delivery.created + HOUR_S, abs=60)


async def test_what_is_gone_is_not_tried_again(
    store: TaskStore, outbox: Outbox, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.reply = http(410)
    task_id = await one_ended(store, receiver.url())
    async with running(sender_of(outbox, store, tmp_path)):
        [delivery] = await outcome_of(outbox, [task_id])
    assert (delivery.state, delivery.attempts, delivery.log[0].status) == (State.FAILED, 1, 410)


@pytest.mark.parametrize("status", [429, 503, 404])
@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_a_receiver_that_asks_for_time_gets_it(
    store: TaskStore, outbox: Outbox, receiver: Receiver, tmp_path: Path, status: int, form: str
) -> None:
    wish_s = 3 * HOUR_S
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=wish_s), usegmt=True)
    receiver.reply = http(status, retry_after=f"{wish_s:.0f}" if form == "seconds" else date)
    task_id = await one_ended(store, receiver.url())
    async with running(sender_of(outbox, store, tmp_path)):
        delivery = await attempted(outbox, task_id)
    assert delivery.next == pytest.approx(delivery.created + wish_s, abs=60)


async def test_after_the_last_attempt_it_is_given_up(store: TaskStore, receiver: Receiver, tmp_path: Path) -> None:
    outbox = outbox_of(store, schedule_s=(QUICK_S, QUICK_S))
    receiver.reply = http(500, b"oops")
    task_id = await one_ended(store, receiver.url())
    async with running(sender_of(outbox, store, tmp_path)):
        [delivery] = await outcome_of(outbox, [task_id])
    assert (delivery.state, delivery.attempts) == (State.FAILED, 3)
    assert [(attempt.status, attempt.text) for attempt in delivery.log] == [(500, "oops")] * 3
    assert receiver.ids == [task_id] * 3


async def test_every_try_has_the_same_id_and_body_and_a_signature_that_is_right_then(
    store: TaskStore, receiver: Receiver, tmp_path: Path
) -> None:
    outbox = outbox_of(store, schedule_s=(QUICK_S, QUICK_S, QUICK_S))
    receiver.replies = [http(500), breaks_off, http(404)]
    task_id = await one_ended(store, receiver.url(), secret=SEALER.seal("the secret"), result=RESULT)
    async with running(sender_of(outbox, store, tmp_path)):
        [delivery] = await outcome_of(outbox, [task_id])
    assert (delivery.state, delivery.attempts) == (State.DELIVERED, 4)
    assert receiver.ids == [task_id] * 4
    assert len({call.body.partition(b"?se=")[0] for call in receiver.received}) == 1
    for call in receiver.received:
        Webhook(b"the secret").verify(call.body, call.headers)


async def test_a_redirect_is_not_followed(
    store: TaskStore, outbox: Outbox, receiver: Receiver, other_receiver: Receiver, tmp_path: Path
) -> None:
    for status in (301, 302, 303, 307, 308):
        receiver.reply = http(status, location=other_receiver.url())
        task_id = await one_ended(store, receiver.url())
        async with running(sender_of(outbox, store, tmp_path)):
            delivery = await attempted(outbox, task_id)
        assert (delivery.state, delivery.log[0].status) == (State.WAITING, status)
    assert other_receiver.connections == 0


async def test_a_name_that_changed_to_an_inside_address_is_not_called(
    store: TaskStore, outbox: Outbox, receiver: Receiver, tmp_path: Path
) -> None:
    answers = [["93.184.215.14"], ["127.0.0.1"], ["93.184.215.14", "127.0.0.1"]]

    async def resolve(host: str, port: int) -> list[str]:
        return answers.pop(0)

    guard = UrlGuard(resolve=resolve)
    url = receiver.url(host="rebound.test")
    await guard.check(url)  # as at submission
    ids = [await one_ended(store, url)]
    async with running(sender_of(outbox, store, tmp_path, guard)):
        await attempted(outbox, ids[0])
        ids.append(await one_ended(store, url))
        await attempted(outbox, ids[1])
    for task_id in ids:
        delivery = await outbox.get(task_id)
        assert delivery is not None
        [attempt] = delivery.log
        assert (attempt.status, attempt.error) == (None, "the host of the URL is not on the public internet")
        assert delivery.state is State.WAITING
    assert receiver.connections == 0
    assert answers == []


async def test_a_name_that_is_open_is_called_by_the_address_that_was_checked(
    store: TaskStore, outbox: Outbox, receiver: Receiver, tmp_path: Path
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        assert (host, port) == ("hooks.test", receiver.port)
        return ["127.0.0.1"]

    task_id = await one_ended(store, receiver.url(host="hooks.test"))
    async with running(sender_of(outbox, store, tmp_path, UrlGuard(LOOPBACK, resolve))):
        await outcome_of(outbox, [task_id])
    [call] = receiver.received
    assert call.headers["host"] == f"hooks.test:{receiver.port}"


async def test_a_secret_that_can_not_be_read_any_more_ends_it_unsent(
    store: TaskStore, outbox: Outbox, receiver: Receiver, tmp_path: Path
) -> None:
    task_id = await one_ended(store, receiver.url(), secret="sealed with a key that is gone")
    async with running(sender_of(outbox, store, tmp_path)):
        [delivery] = await outcome_of(outbox, [task_id])
    assert delivery.state is State.FAILED
    assert "sealing.keys" in delivery.log[0].error
    assert receiver.connections == 0


async def test_a_task_that_is_gone_ends_it(store: TaskStore, outbox: Outbox, tmp_path: Path) -> None:
    task_id = await one_ended(store, URL)
    await store.redis.delete(f"{store.prefix}task:{task_id}")
    async with running(sender_of(outbox, store, tmp_path)):
        [delivery] = await outcome_of(outbox, [task_id])
    assert (delivery.state, delivery.log[0].error) == (State.FAILED, "the task is no longer kept")


@pytest.mark.parametrize("status", [Status.ERROR, Status.REQUEST_MODERATED, Status.CONTENT_MODERATED])
async def test_a_task_without_a_result_is_told_of_too(
    store: TaskStore, outbox: Outbox, receiver: Receiver, tmp_path: Path, status: Status
) -> None:
    task_id = await one_ended(store, receiver.url(), status=status, details={"Moderation Reasons": ["nudité"]})
    async with running(sender_of(outbox, store, tmp_path)):
        await outcome_of(outbox, [task_id])
    [call] = receiver.received
    assert f'"status":"{status.value}"'.encode() in call.body
    assert '"details":{"Moderation Reasons":["nudité"]}'.encode() in call.body


async def test_an_object_store_that_cannot_sign_costs_an_attempt_and_is_no_fault_of_the_receivers(
    store: TaskStore, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = outbox_of(
        store, schedule_s=(QUICK_S,), jitter=0, timeout_s=60, trips_after=1, shut_s=HOUR_S, most_shut_s=HOUR_S
    )
    body, away = Presenter.body, iter([True])

    async def signed(self: Presenter, task: Task, base: str) -> dict[str, Any]:
        if next(away, False):
            raise GenericError("away")
        return await body(self, task, base)

    monkeypatch.setattr(Presenter, "body", signed)
    task_id = await one_ended(store, receiver.url(), result=RESULT)
    async with running(sender_of(outbox, store, tmp_path)):
        [delivery] = await outcome_of(outbox, [task_id])
    first, second = delivery.log
    assert (first.status, second.status, delivery.state) == (None, 204, State.DELIVERED)
    assert "object store" in first.error
    assert len(receiver.received) == 1
