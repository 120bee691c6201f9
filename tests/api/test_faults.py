"""Fault matrix: each part that a task needs, failing in each way once, over the real app and a real Valkey.

Whatever fails, the task ends once, its price is settled once, its slot is free, and every background loop lives.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from obstore.exceptions import GenericError
from ray.exceptions import ActorUnavailableError
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from support.dispatchers import CallModel, fake_rewriter
from support.http_client import HOOK_HOST, Client
from support.http_service import Service, running
from support.ledger import assert_books_balance
from support.webhook_receiver import Reply, cut_off, http_response, receiving
from support.webhook_senders import SEALER, start_sender, wait_for_states
from support.webhook_senders import kill as kill_sender

from deployments.contract.events import Done, Event, Preview, Progress, Started
from deployments.contract.job import GenerationJob, Output
from deployments.contract.moderation import Scores, Thresholds
from deployments.contract.objects import ObjectStore
from serve_app.accounts.credits import CreditStore
from serve_app.background import BackgroundTasks, rest
from serve_app.config.settings import TaskSettings, WebhookSettings
from serve_app.dispatcher import attempt, failures
from serve_app.dispatcher.attempt import AttemptContext, Timeouts
from serve_app.dispatcher.concurrency import ConcurrencyLimiter
from serve_app.dispatcher.queue import QueueConsumer
from serve_app.inputs.ssrf import UrlGuard
from serve_app.moderation import gate as gates
from serve_app.moderation.gate import Gate
from serve_app.storage import connection
from serve_app.tasks.serializer import ResultSerializer
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status
from serve_app.webhooks.outbox import DeliveryState, Outbox
from serve_app.webhooks.sender import Sender

QUEUE: Final = "flux3-klein"
PATIENCE_S: Final = 20
SLOW_S: Final = 0.3
"""Longer than any timeout of these tests."""

Call: TypeAlias = Callable[[], Awaitable[Any]]
Fault: TypeAlias = Callable[[Call, Exception, Any], Awaitable[Any]]
"""Answers a call with a fault, given the part's own error and half an answer of it."""


async def slow(call: Call, error: Exception, half: Any) -> Any:
    await asyncio.sleep(SLOW_S)
    return await call()


async def own_error(call: Call, error: Exception, half: Any) -> Any:
    raise error


async def foreign_error(call: Call, error: Exception, half: Any) -> Any:
    raise AttributeError("'NoneType' object has no attribute 'x'")


async def cancelled(call: Call, error: Exception, half: Any) -> Any:
    raise asyncio.CancelledError


async def half_answer(call: Call, error: Exception, half: Any) -> Any:
    """Does the work; of the answer, at most half arrives."""
    await call()
    if isinstance(half, Exception):
        raise half
    return half


FAULTS: Final = (slow, own_error, foreign_error, cancelled, half_answer)
OWN_ERRORS: Final[dict[str, Exception]] = {
    "redis": RedisConnectionError("away"),
    "objects": GenericError("away"),
    "moderator": ConnectionError("gone"),
    "stream": ActorUnavailableError("gone", None),
    "rewriter": ActorUnavailableError("gone", None),
    "serializer": GenericError("links can't be signed"),
}
HALVES: Final[dict[str, Any]] = {"redis": RedisConnectionError("no answer"), "objects": GenericError("no answer")}
"""Half an answer of a part; None by default."""
RECEIVER_REPLIES: Final[dict[Fault, Reply]] = {
    own_error: http_response(500),
    foreign_error: b"\x00\xff no HTTP\r\n\r\n",
    half_answer: cut_off,
}


class Faulty:
    """Passes calls on to a part. The first call of each coroutine method has a fault."""

    def __init__(self, target: Any, name: str, fault: Fault | None) -> None:
        self._target = target
        self._name, self._fault = name, fault
        self._called = set[str]()
        self.ended = set[str]()
        """Methods of which a call ended, with its fault."""

    def __getattr__(self, method: str) -> Any:
        value = getattr(self._target, method)
        if not inspect.iscoroutinefunction(value):
            return value

        async def call(*args: Any, **options: Any) -> Any:
            fault = None if method in self._called else self._fault
            self._called.add(method)
            try:
                if fault is None:
                    return await value(*args, **options)
                return await fault(partial(value, *args, **options), OWN_ERRORS[self._name], HALVES.get(self._name))
            finally:
                self.ended.add(method)

        return call


class KeyClassifiers:
    """Classifiers that reject objects by a part of their key."""

    def __init__(self, refused: str = "nothing") -> None:
        self._refused = refused

    async def moderate_text(self, text: str) -> Scores:
        return {"violence": 0.0}

    async def moderate_object(self, key: str) -> Scores:
        return {"violence": float(self._refused in key)}


class Stream:
    """A model's call that stores an image. The fault of a stream comes amid its events."""

    def __init__(self, job: GenerationJob, objects: ObjectStore, fault: Fault | None) -> None:
        self._job, self._objects, self._fault = job, objects, fault

    async def __aiter__(self) -> AsyncIterator[Event]:
        yield Started()
        key = f"{self._job.output_prefix}/image.png"
        await self._objects.put(key, b"x", "image/png")
        yield Progress(0.5)
        yield Preview(key, 1, 2)
        if self._fault is not None:
            await self._fault(partial(asyncio.sleep, 0), OWN_ERRORS["stream"], None)
            return
        yield Done(Output(key, "image/png", 64, 64, 1))

    def cancel(self) -> None:
        """Does nothing: the stream ends by itself."""


class FaultScene:
    """A dispatcher and a webhook sender of one service, one part of which is faulty."""

    def __init__(self, service: Service, redis: Redis, part: str, fault: Fault) -> None:
        def faulty(name: str, target: Any) -> Any:
            return Faulty(target, name, fault if name == part else None)

        settings = service.settings
        prefix = settings.redis.prefix
        self.store = TaskStore(redis, prefix, settings.tasks.limits(), at_rest=settings.at_rest())
        self.faulty_store = faulty("redis", self.store)
        objects = service.worker.objects
        faults = itertools.chain([fault if part == "stream" else None], itertools.repeat(None))
        # Only of a refused result something is deleted, which object stores may fail at.
        classifiers = faulty("moderator", KeyClassifiers("image" if part == "objects" else "nothing"))

        async def choose_ratio(prompt: str, seed: int) -> str:
            return "3:2"

        self.limiter = ConcurrencyLimiter(4, 16)
        context = AttemptContext(
            QUEUE,
            self.faulty_store,
            faulty("objects", objects),
            CallModel(lambda job: Stream(job, objects, next(faults))),
            self.limiter,
            Timeouts(SLOW_S / 3, SLOW_S / 3),
            fake_rewriter(ratios=faulty("rewriter", type("Writer", (), {"write": staticmethod(choose_ratio)})).write),
            Gate(classifiers, Thresholds({"violence": (0.5,)}), call_s=SLOW_S / 3, wait_s=PATIENCE_S),
        )
        self.queue = QueueConsumer(context, max_leased=100)
        self.outbox = Outbox(redis, prefix, settings.webhooks, settings.at_rest())
        serializer = faulty("serializer", ResultSerializer(objects, service.app.state.services.links, 100_000))
        guard = UrlGuard([HOOK_HOST], resolve_to_loopback)
        self.sender = Sender(self.outbox, self.store, serializer, SEALER, guard)

    async def poll(self) -> None:
        while True:
            self.queue.wake.set()
            await rest(0.02)


async def resolve_to_loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture(scope="module")
def faulty_service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    webhooks = WebhookSettings(schedule_s=(0.02,) * 5, jitter=0, timeout_s=SLOW_S / 3, claim_s=1)
    folder = tmp_path_factory.mktemp("faults")
    # No reaper runs: no task may be left to it.
    with running(folder, redis_url, repository, tasks=TaskSettings(lease_s=1), webhooks=webhooks) as service:
        yield service


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("part", [*OWN_ERRORS, "receiver"])
def test_task_ends_once_and_all_goes_on_after_a_fault(
    faulty_service: Service, monkeypatch: pytest.MonkeyPatch, part: str, fault: Fault
) -> None:
    for module, name in ((attempt, "_RETRY_S"), (failures, "_PAUSE_S"), (gates, "_FIRST_PAUSE_S")):
        monkeypatch.setattr(module, name, 0.01)
    organization = faulty_service.worker.new_organization(credits=100)
    with faulty_service.client(organization=organization) as client:
        asyncio.run(run_case(faulty_service, client, part, fault))
        assert client.get("/readyz").status_code == 200


async def run_case(service: Service, client: Client, part: str, fault: Fault) -> None:
    async with AsyncExitStack() as stack:
        destination = await stack.enter_async_context(receiving())
        if part == "receiver":
            destination.replies = [RECEIVER_REPLIES.get(fault, destination.hang)]
        redis = connection.connect(service.settings.redis_url)
        stack.push_async_callback(redis.aclose)
        scene = FaultScene(service, redis, part, fault)
        loops = BackgroundTasks({"lease": scene.queue.lease, "heartbeat": scene.queue.heartbeat, "poll": scene.poll})
        stack.push_async_callback(loops.stop)
        sending = start_sender(scene.sender)
        stack.push_async_callback(kill_sender, scene.sender, sending)
        url = f"http://{HOOK_HOST}:{destination.port}/{uuid.uuid4().hex}"
        async with asyncio.timeout(PATIENCE_S):
            while "lease" not in scene.faulty_store.ended:  # a lease whose answer is lost would be left to the reaper
                await asyncio.sleep(0.005)
            task_id = await asyncio.to_thread(client.create_task, webhook_url=url)
            while not await scene.outbox.get(task_id):
                await asyncio.sleep(0.01)
            [delivery] = await wait_for_states(scene.outbox, [task_id])
            while scene.queue._attempts:
                await asyncio.sleep(0.01)

        task = await scene.store.reads.get(task_id)
        assert task is not None
        assert task.status is (Status.CONTENT_MODERATED if part == "objects" else Status.READY)
        assert (delivery.state, set(destination.ids)) == (DeliveryState.DELIVERED, {task_id})
        balance = await assert_books_balance(CreditStore(redis, service.settings.redis.prefix), client.organization)
        assert (balance.held, balance.spent) == (0, (task.cost or 0) if task.status is Status.READY else 0)
        limiter = scene.limiter
        assert not any((limiter._preparing, limiter._waiting, limiter._starting, limiter._running))
        loops.check()
        sending.check()
