"""Webhook senders in this process, with deliveries to real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from deployments.contract.objects import ObjectStore
from serve_app.background import BackgroundTasks
from serve_app.encryption import Sealer, new_key
from serve_app.inputs.links import LinkSigner
from serve_app.inputs.ssrf import UrlGuard
from serve_app.tasks.serializer import ResultSerializer
from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import Delivery, DeliveryState, Outbox
from serve_app.webhooks.sender import Sender

KEY = new_key()
SEALER = Sealer([KEY])
LOOPBACK = ["127.0.0.0/8"]
PLAIN = "X-Webhook-Signature"
QUICK_S = 0.05
"""Seconds between attempts."""


def serializer(folder: Path) -> ResultSerializer:
    return ResultSerializer(ObjectStore(folder.as_uri()), LinkSigner(bytes(32)), 100_000)


def make_sender(outbox: Outbox, tasks: TaskStore, folder: Path, guard: UrlGuard | None = None) -> Sender:
    return Sender(outbox, tasks, serializer(folder), SEALER, guard or UrlGuard(LOOPBACK), [PLAIN])


async def kill(sender: Sender, loops: BackgroundTasks) -> None:
    """Stops a sender without recording the deliveries under way."""
    for task in (*loops._tasks, *sender._running.values()):
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=0.5)
    await sender.drain()


def start_sender(sender: Sender) -> BackgroundTasks:
    return BackgroundTasks({"listen": sender.listen, "send": sender.send, "prolong": sender.prolong})


@asynccontextmanager
async def running(sender: Sender) -> AsyncIterator[Sender]:
    loops = start_sender(sender)
    try:
        yield sender
        loops.check()
    finally:
        await kill(sender, loops)


async def wait_for_states(outbox: Outbox, ids: Sequence[str], *states: DeliveryState) -> list[Delivery]:
    """Returns the deliveries once each is in one of the states, by default delivered or failed."""
    expected = states or (DeliveryState.DELIVERED, DeliveryState.FAILED)
    async with asyncio.timeout(60):
        while True:
            deliveries = [each for each in await outbox._get_many(ids) if each is not None]
            assert len(deliveries) == len(ids)
            if all(delivery.state in expected for delivery in deliveries):
                return deliveries
            await asyncio.sleep(0.02)


async def wait_for_attempts(outbox: Outbox, task_id: str, n: int = 1) -> Delivery:
    """Returns the delivery once `n` attempts are recorded."""
    async with asyncio.timeout(60):
        while True:
            delivery = await outbox.get(task_id)
            assert delivery is not None
            if len(delivery.log) >= n:
                return delivery
            await asyncio.sleep(0.02)
