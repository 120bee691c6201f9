"""Dispatchers over one store and one simulated model, without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

from redis.asyncio import Redis

from deployments.contract.job import GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.telemetry.tracing import OFF, Tracer
from serve_app.config.settings import DispatcherSettings
from serve_app.dispatcher.attempt import AttemptContext, Timeouts
from serve_app.dispatcher.clients import EventStream, ModelClient, RewriterClient, RewriterTask
from serve_app.dispatcher.concurrency import ConcurrencyLimiter
from serve_app.dispatcher.queue import DeviceTurn, QueueConsumer
from serve_app.moderation.gate import Gate
from serve_app.tasks.limits import Limits
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Task
from support.payloads import new_payload
from support.simulated_model import SimulatedModel
from support.tasks import QUEUE, get_task, new_task

PRICE = 900
PATIENCE_S = 60

Write: TypeAlias = Callable[[str, int], Awaitable[str]]
"""Rewrites a prompt, by a seed."""


def fake_rewriter(
    prompts: Write | None = None, edits: Write | None = None, ratios: Write | None = None, timeout_s: float = 0.2
) -> RewriterClient:
    """Returns a client of a rewriter for which only the given tasks are enabled."""

    def rewrite(prompt: str, seed: int, edit: bool = False) -> Awaitable[str]:
        write = edits if edit else prompts
        assert write is not None
        return write(prompt, seed)

    writes: dict[RewriterTask, Write | None] = {"prompts": prompts, "edits": edits, "ratios": ratios}
    handle = SimpleNamespace(rewrite=SimpleNamespace(remote=rewrite), ratio=SimpleNamespace(remote=ratios))
    return RewriterClient(cast(Any, handle), [task for task, write in writes.items() if write], timeout_s)


class CallModel(ModelClient):
    """A model client that calls a function."""

    def __init__(self, call: Callable[[GenerationJob], EventStream]) -> None:
        self._call = call

    def call(self, job: GenerationJob) -> EventStream:
        return self._call(job)


class Scene:
    """Queue consumers, called dispatchers, over one store and one model."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self.store = TaskStore(redis, prefix, Limits(lease_s=2, max_active=500))
        self.objects = ObjectStore("memory:///")
        self.model = SimulatedModel()
        self.queues: list[QueueConsumer] = []
        self.call: Callable[[GenerationJob], EventStream] = self.model.generate
        self.rewriter = fake_rewriter()
        self.gate: Gate | None = None
        self.tracer: Tracer = OFF
        self.turn: DeviceTurn | None = None
        self._loops: dict[QueueConsumer, list[asyncio.Task[None]]] = {}

    def dispatcher(self, **settings: Any) -> QueueConsumer:
        config = DispatcherSettings(**settings)
        context = AttemptContext(
            QUEUE,
            self.store,
            self.objects,
            CallModel(self.call),
            ConcurrencyLimiter(config.headroom, config.max_preparing),
            Timeouts(config.start_s, config.stall_s),
            self.rewriter,
            self.gate,
            self.tracer,
        )
        queue = QueueConsumer(context, max_leased=500, turn=self.turn)
        self.queues.append(queue)
        self._loops[queue] = [
            asyncio.create_task(loop) for loop in (queue.lease(), queue.heartbeat(), self._poll(queue))
        ]
        return queue

    async def _poll(self, queue: QueueConsumer) -> None:
        while True:
            if await self.store.reads.non_empty_queues(queue.name):
                queue.wake.set()
            await asyncio.sleep(0.05)

    async def kill(self, queue: QueueConsumer) -> None:
        """Stops the queue's loops and calls, as `kill -9` does."""
        while remaining := [task for task in (*self._loops[queue], *queue._tasks) if not task.done()]:
            for task in remaining:
                task.cancel()
            await asyncio.sleep(0)  # `wait_for` can lose a cancellation that comes with its result

    async def submit(self, n: int = 1, prompt: str = "a star", **job: Any) -> list[str]:
        ids = []
        for _ in range(n):
            task = new_task(payload=new_payload(prompt=prompt, **job), price=PRICE)
            await self.store.submit(task)
            ids.append(task.id)
        for queue in self.queues:
            queue.wake.set()
        return ids

    async def task(self, task_id: str) -> Task:
        return await get_task(self.store, task_id)

    async def wait_for_end(self, ids: list[str]) -> list[Task]:
        """Returns the tasks once all have ended."""
        await self.until(lambda: self._all_ended(ids))
        return [await self.task(task_id) for task_id in ids]

    async def until(self, reached: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                outcome = reached()
                if await outcome if asyncio.iscoroutine(outcome) else outcome:
                    return
                await asyncio.sleep(0.01)

    async def _all_ended(self, ids: list[str]) -> bool:
        return all([(await self.task(task_id)).status.terminal for task_id in ids])

    async def close(self) -> None:
        for queue in self.queues:
            await self.kill(queue)
