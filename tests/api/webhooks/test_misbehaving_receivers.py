"""Receivers that answer too much, too late or nonsense do a sender no harm."""

from __future__ import annotations

import gzip
import socket
import tracemalloc
from pathlib import Path

import pytest
from support.deliveries import HOUR_S, one_ended, outbox_of
from support.receiver import Receiver, Reply, breaks_off, http, is_silent_after_the_head, never_stops
from support.sender import QUICK_S, attempted, outcome_of, running, sender_of

from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import Outbox, State


@pytest.fixture
def outbox(store: TaskStore) -> Outbox:
    """A failed attempt is followed by another one, in an hour."""
    return outbox_of(store, schedule_s=(HOUR_S,), timeout_s=60)


BAD: dict[str, tuple[Reply, str]] = {
    "hangs": (is_silent_after_the_head, "no answer within 2 s"),
    "breaks off": (breaks_off, "the connection broke, or what came was not HTTP"),
    "says nothing": (b"", "the connection broke, or what came was not HTTP"),
    "is no web server": (b"SSH-2.0-OpenSSH_9.6\r\n", "the connection broke, or what came was not HTTP"),
    "endless head": (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000, "its answer has more than 16 KiB of headers"),
    "endless line": (b"HTTP/1.1 200 " + b"x" * 1_000_000, "its answer has more than 16 KiB of headers"),
    "endless interim answers": (b"HTTP/1.1 103 Early\r\n\r\n" * 100_000, "its answer has more than 16 KiB of headers"),
    "endless tiny chunks": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100_000,
        "its answer comes in too many tiny pieces",
    ),
    "bad chunk": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "the connection broke, or what came was not HTTP",
    ),
}


@pytest.mark.parametrize(("reply", "error"), BAD.values(), ids=BAD)
async def test_a_receiver_that_misbehaves_is_tried_again(
    store: TaskStore, receiver: Receiver, tmp_path: Path, reply: Reply, error: str
) -> None:
    outbox = outbox_of(store, schedule_s=(QUICK_S,), timeout_s=2 if reply is is_silent_after_the_head else 60)
    receiver.replies = [reply]
    task_id = await one_ended(store, receiver.url())
    async with running(sender_of(outbox, store, tmp_path)):
        [delivery] = await outcome_of(outbox, [task_id])
    first, second = delivery.log
    assert (first.status, first.error, second.status) == (None, error, 204)
    assert delivery.state is State.DELIVERED


async def test_a_receiver_that_is_not_there(store: TaskStore, outbox: Outbox, tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        task_id = await one_ended(store, f"http://127.0.0.1:{bound.getsockname()[1]}/")
        async with running(sender_of(outbox, store, tmp_path)):
            delivery = await attempted(outbox, task_id)
    assert [(attempt.status, attempt.error) for attempt in delivery.log] == [(None, "the connection was refused")]


async def test_of_an_endless_answer_only_the_beginning_is_read(
    store: TaskStore, outbox: Outbox, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.reply = never_stops
    task_id = await one_ended(store, receiver.url())
    async with running(sender_of(outbox, store, tmp_path)):
        [delivery] = await outcome_of(outbox, [task_id])
        await receiver.dropped.wait()
    assert delivery.state is State.DELIVERED
    assert delivery.log[0].text == "x" * 1024


async def test_a_long_answer_is_kept_in_part_and_as_text(
    store: TaskStore, outbox: Outbox, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.reply = http(200, b"\xff\x00" + "é".encode() * 2000)
    task_id = await one_ended(store, receiver.url())
    async with running(sender_of(outbox, store, tmp_path)):
        [delivery] = await outcome_of(outbox, [task_id])
    assert delivery.log[0].text == "\ufffd\x00" + "é" * 511


ENDLESS_NAME = b"\x1f\x8b\x08\x08" + bytes(6) + b"x" * 100_000_000
"""The head of a gzip file whose name does not end: unfolding it yields nothing, however much there is."""


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (gzip.compress(bytes(100_000_000), 9), "gzip"),
        (gzip.compress(gzip.compress(ENDLESS_NAME, 9), 9), "gzip, gzip, gzip"),
        (b"not gzip at all", "gzip"),
    ],
    ids=["large", "three times", "none"],
)
async def test_an_answer_in_an_encoding_is_never_unfolded(
    store: TaskStore, outbox: Outbox, receiver: Receiver, tmp_path: Path, body: bytes, encoding: str
) -> None:
    receiver.reply = http(200, body, content_encoding=encoding)
    task_id = await one_ended(store, receiver.url())
    async with running(sender_of(outbox, store, tmp_path)):
        tracemalloc.start()
        try:
            [delivery] = await outcome_of(outbox, [task_id])
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (delivery.state, delivery.log[0].status, delivery.log[0].text) == (State.DELIVERED, 200, "")
    assert most < 10_000_000
