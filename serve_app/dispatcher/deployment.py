"""The dispatcher deployment: leases tasks and carries them to the models.

Every replica does all of this for every queue; they meet only in Redis. Leases keep tasks safe: a living dispatcher
prolongs its own, and the reaper of any other requeues the tasks of a dead one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import defaultdict
from functools import partial
from typing import Final

from ray import serve
from ray.serve.handle import DeploymentHandle
from redis.exceptions import RedisError

from deployments.contract.moderation import ModeratorSpec, Thresholds
from deployments.contract.objects import ObjectStore
from deployments.proxies import apply_proxy
from deployments.telemetry import create_tracer, logs
from serve_app import ray_internals
from serve_app.background import BackgroundTasks, idle, rest
from serve_app.config.replicas import BoundSettings
from serve_app.dispatcher.attempt import AttemptContext, Timeouts
from serve_app.dispatcher.clients import ModelClient, ModerationClient, RewriterClient
from serve_app.dispatcher.concurrency import ConcurrencyLimiter
from serve_app.dispatcher.maintenance import Maintenance
from serve_app.dispatcher.queue import DeviceTurn, QueueConsumer
from serve_app.moderation.gate import Gate, ModeratorLimiter
from serve_app.storage import connection
from serve_app.storage.log_levels import LogLevels
from serve_app.storage.tally import CounterBuffer, CounterName
from serve_app.tasks.store import TaskStore

_POLL_INTERVAL_S: Final = 1.0
_MODELS_INTERVAL_S: Final = 5.0

SECTIONS: Final = (
    "redis",
    "objects",
    "tasks",
    "accounts",
    "sealing",
    "webhooks",
    "dispatcher",
    "models",
    "rewriter",
    "moderation",
    "tracing",
    "logs",
)
"""Sections of the settings that the dispatcher reads."""


class Dispatcher:
    def __init__(
        self,
        bound: BoundSettings,
        models: dict[str, DeploymentHandle],
        rewriter: DeploymentHandle | None = None,
        moderator: DeploymentHandle | None = None,
        moderators: ModeratorSpec | None = None,
        thresholds: Thresholds | None = None,
    ) -> None:
        """`moderators` are all classifiers; those with weights are behind `moderator`."""
        settings = bound.settings()
        logs.configure_replica(settings.logs.spec())
        apply_proxy(settings.network.proxy)
        ray_internals.send_token_as_metadata()
        redis, prefix = connection.connect(settings.redis_url), settings.redis.prefix
        self._redis = redis
        self._prefix = prefix
        self._id = uuid.uuid4().hex
        self._tally = CounterBuffer()
        self._tracer = create_tracer(settings.tracing.spec(), "dispatcher")
        levels = LogLevels(redis, prefix, settings.logs.levels)
        store = self._store = TaskStore(
            redis, prefix, settings.tasks.limits(), settings.redis.replication(), settings.at_rest()
        )
        objects = ObjectStore(settings.objects_url, settings.objects.options)
        rewriter_client = RewriterClient(rewriter, settings.rewriter.asked_for, settings.rewriter.timeout_s)
        gate = None
        if moderators and thresholds:
            moderation = settings.moderation
            gate = Gate(
                ModerationClient(moderators, moderator),
                thresholds,
                call_s=moderation.call_s,
                video_call_s=moderation.video_call_s,
                wait_s=moderation.wait_s,
                fail_open=moderation.when_down == "pass",
                # A batch that is moderated and one that waits, of each replica; a video takes it long.
                calls=ModeratorLimiter(2 * moderation.max_batch * moderation.max_replicas),
                video_calls=ModeratorLimiter(moderation.max_replicas),
                observe=partial(self._tally.observe, CounterName.MODERATION),
            )
        turns: dict[str, list[str]] = defaultdict(list)
        for name in models:
            if (sharing := settings.model(name).sharing) and sharing.turn_s:
                turns[sharing.device].append(name)
        limits = settings.dispatcher
        self._queues: dict[str, QueueConsumer] = {}
        for name, handle in models.items():
            model, turn = settings.model(name), None
            if (sharing := model.sharing) and sharing.turn_s:
                turn = DeviceTurn(store, sharing.device, sharing.turn_s, turns[sharing.device])
            context = AttemptContext(
                name,
                store,
                objects,
                ModelClient(handle, levels),
                ConcurrencyLimiter(limits.headroom, limits.max_preparing),
                Timeouts(limits.start_s, limits.stall_s, model.run_s or settings.tasks.run_s),
                rewriter_client,
                gate,
                self._tracer,
            )
            # Enough to keep every replica full and, by the headroom, to ask for one more.
            max_leased = (
                model.max_running * model.max_replicas + (limits.headroom + limits.max_preparing) * limits.num_replicas
            )
            self._queues[name] = QueueConsumer(context, max_leased, turn, self._id)
        self._drain_s = limits.drain_s
        maintenance = Maintenance(store, objects, list(models))
        self._loops = BackgroundTasks(
            {
                "listen": self._listen,
                "poll": self._poll,
                "heartbeat": self._heartbeat,
                "watch models": self._watch_models,
                "log levels": levels.follow,
                "sweep": maintenance.sweep,
                "reap": maintenance.reap,
                "tally": partial(self._tally.flush_forever, redis, prefix),
                **{f"lease {queue.name}": queue.lease for queue in self._queues.values()},
                **{f"heartbeat {queue.name}": queue.heartbeat for queue in self._queues.values()},
            }
        )

    async def check_health(self) -> None:
        self._loops.check()

    async def __del__(self) -> None:
        """Drains before shutdown: gives back tasks that no model has begun with, and finishes the others in time."""
        await asyncio.gather(*(queue.drain(self._drain_s) for queue in self._queues.values()))
        await self._loops.stop()
        with contextlib.suppress(RedisError):
            await self._report()
        await self._tally.flush_at_exit(self._redis, self._prefix)
        await self._redis.aclose()
        await asyncio.to_thread(self._tracer.close)

    async def _heartbeat(self) -> None:
        while True:
            await self._store.heartbeat_dispatcher()
            await self._report()
            await rest(_POLL_INTERVAL_S)

    async def _report(self) -> None:
        for queue in self._queues.values():
            await queue.report()

    async def _poll(self) -> None:
        """Wakes the queues in which tasks wait, since messages can be lost."""
        while True:
            for name in await self._store.reads.non_empty_queues(*self._queues):
                self._queues[name].wake.set()
            await rest(_POLL_INTERVAL_S)

    async def _watch_models(self) -> None:
        """Finds out why there is no replica, for the queues that wait for one."""
        while True:
            await rest(_MODELS_INTERVAL_S)
            queues = [queue for queue in self._queues.values() if queue.waits_for_replica]
            if not queues:
                continue
            replicas = await asyncio.to_thread(ray_internals.count_replicas, serve.get_replica_context().app_name)
            for queue in queues:
                counts = replicas.get(queue.name)
                queue.note_fault(counts.fault if counts else None, time.monotonic())

    async def _listen(self) -> None:
        """Subscribes to wake-ups and cancellations. Messages can be lost: polling and heartbeats catch up."""
        wake, stop = self._store.channel(f"wake:{self._id}"), self._store.channel("stop")
        async with self._redis.pubsub() as pubsub:
            await pubsub.subscribe(stop, wake)
            messages = pubsub.listen()
            while True:
                with idle():
                    message = await anext(messages)
                if message["type"] == "subscribe":
                    # Messages before it were lost, and the store wakes only those who listen.
                    for queue in self._queues.values():
                        queue.on_wake()
                elif message["channel"] == stop:
                    for queue in self._queues.values():
                        queue.stop(message["data"])
                else:
                    self._queues[message["data"]].on_wake()
