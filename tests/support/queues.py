"""Queues of dispatchers over one store and one simulated model, without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import Redis

from deployments.contract.job import GenerationJob
from deployments.telemetry.tracing import OFF, Tracer
from serve_app.config.model_settings import ModelSettings
from serve_app.config.settings import DispatcherSettings
from serve_app.dispatcher.attempt import Dependencies, Stream, Timeouts, Write
from serve_app.dispatcher.queue import ModelQueue
from serve_app.moderation.gate import Gate
from serve_app.tasks.limits import Limits
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Task
from support.payloads import new_payload
from support.simulated_model import SimulatedModel
from support.tasks import QUEUE, get_task, new_task

PRICE = 900
PATIENCE_S = 60


class Scene:
    """Queues ("dispatchers") over one store and one model."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self.store = TaskStore(redis, prefix, Limits(lease_s=2, max_active=500))
        self.model = SimulatedModel()
        self.queues: list[ModelQueue] = []
        self.call: Callable[[GenerationJob], Stream] = self.model.generate
        self.rewrite: Write | None = None
        self.rewrite_edit: Write | None = None
        self.ratio: Write | None = None
        self.gate: Gate | None = None
        self.tracer: Tracer = OFF
        self.has_turn: Callable[[], Awaitable[bool]] | None = None
        self._loops: dict[ModelQueue, list[asyncio.Task[None]]] = {}

    def dispatcher(self, rewrite_s: float = 0.2, **settings: Any) -> ModelQueue:
        config = DispatcherSettings(**settings)
        timeouts = Timeouts(config.start_s, config.stall_s, rewrite_s)
        dependencies = Dependencies(
            self.call,
            timeouts,
            self.rewrite,
            self.gate,
            rewrite_edit=self.rewrite_edit,
            ratio=self.ratio,
            tracer=self.tracer,
        )
        queue = ModelQueue(QUEUE, self.store, dependencies, config, ModelSettings(max_running=25), self.has_turn)
        self.queues.append(queue)
        self._loops[queue] = [
            asyncio.create_task(loop) for loop in (queue.lease(), queue.heartbeat(), self._look(queue))
        ]
        return queue

    async def _look(self, queue: ModelQueue) -> None:
        while True:
            if await self.store.with_work(queue.name):
                queue.wake.set()
            await asyncio.sleep(0.05)

    async def kill(self, queue: ModelQueue) -> None:
        """As `kill -9`: its loops stop, and so do its calls to the model."""
        while remaining := [task for task in (*self._loops[queue], *queue._tasks) if not task.done()]:
            for task in remaining:
                task.cancel()
            await asyncio.sleep(0)  # again, if need be: `wait_for` loses a cancellation that comes with its result

    async def submit(self, n: int = 1, prompt: str = "a star", **job: Any) -> list[str]:
        ids = []
        for _ in range(n):
            task = new_task(job=new_payload(prompt=prompt, **job).encode(), price=PRICE)
            await self.store.submit(task)
            ids.append(task.id)
        for queue in self.queues:
            queue.wake.set()
        return ids

    async def task(self, task_id: str) -> Task:
        return await get_task(self.store, task_id)

    async def wait_for_end(self, ids: list[str]) -> list[Task]:
        """The tasks once all have ended."""
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
