"""The dispatcher deployment: leases tasks and carries them to the models.

Every replica does all of this for every queue; they meet only in Redis. What keeps a task safe is its lease: a living
dispatcher prolongs its leases, and when one is dead the reaper of any other takes the tasks back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ray import serve
from ray.serve.handle import DeploymentHandle
from redis.exceptions import RedisError

from deployments.contract.job import GenerationJob
from deployments.contract.model import Sharing
from deployments.contract.moderation import ModeratorSpec, Scores, Thresholds, highest
from deployments.contract.objects import ObjectStore
from deployments.moderation.deployment import LocalModerator
from deployments.proxies import apply_proxy
from deployments.telemetry import logs
from deployments.telemetry.tracing import create_tracer
from serve_app import ray_internals
from serve_app.background import Loops, idle, rest
from serve_app.config.replicas import BoundSettings
from serve_app.dispatcher.attempt import Dependencies, Timeouts, Write
from serve_app.dispatcher.maintenance import Maintenance
from serve_app.dispatcher.queue import ModelQueue
from serve_app.moderation.gate import Calls, Classify, Gate
from serve_app.moderation.settings import ModerationSettings
from serve_app.storage import connection
from serve_app.storage.pages import LogLevels
from serve_app.storage.tally import CounterBuffer, CounterName
from serve_app.tasks.store import TaskStore

_LOOK_EVERY_S = 1.0
_LOOK_AT_MODELS_EVERY_S: Final = 5.0
_LOCAL_BATCH: Final = 2
"""Twice as many images are in this process' memory at a time; inputs may have a hundred megabytes."""


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
"""Of the settings, what it reads."""


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
        logs.begin(settings.logs.spec())
        apply_proxy(settings.network.proxy)
        ray_internals.send_token_as_metadata()
        redis = connection.connect(settings.redis_url)
        self._redis = redis
        self._prefix = settings.redis.prefix
        self._id = uuid.uuid4().hex
        self._tally = CounterBuffer()
        self._tracer = create_tracer(settings.tracing.spec(), "dispatcher")
        levels = LogLevels(redis, settings.redis.prefix, settings.logs.levels)
        self._store = TaskStore(
            redis, settings.redis.prefix, settings.tasks.limits(), settings.redis.replication(), settings.at_rest()
        )
        chosen = settings.dispatcher
        timeouts = Timeouts(chosen.start_s, chosen.stall_s, settings.rewriter.timeout_s)
        objects = ObjectStore(settings.objects_url, settings.objects.options)
        writes = _writes(rewriter, settings.rewriter.asked_for) if rewriter else {}
        gate = None
        if moderators and thresholds:
            took = partial(self._tally.observe, CounterName.MODERATION)
            classify = classify_by(moderators, moderator)
            gate = Gate(*classify, thresholds, objects, took=took, **_gate_options(settings.moderation))
        self._turns: dict[str, list[str]] = defaultdict(list)
        """By device, the models that take turns on it."""
        for name in models:
            if (sharing := settings.model(name).sharing) and sharing.turn_s:
                self._turns[sharing.device].append(name)
        self._queues: dict[str, ModelQueue] = {}
        for name, handle in models.items():
            model = settings.model(name)
            model_timeouts = replace(timeouts, run_s=model.run_s or settings.tasks.run_s)
            dependencies = Dependencies(
                _caller(handle, levels), model_timeouts, gate=gate, objects=objects, tracer=self._tracer, **writes
            )
            has_turn = partial(self._has_turn, name, sharing) if (sharing := model.sharing) and sharing.turn_s else None
            self._queues[name] = ModelQueue(name, self._store, dependencies, chosen, model, has_turn, self._id)
        self._maintenance = Maintenance(self._store, objects, list(models))
        prefix = settings.redis.prefix
        self._drain_s = settings.dispatcher.drain_s
        self._loops = Loops(
            {
                "listen": self._listen,
                "look": self._look,
                "be present": self._be_present,
                "watch models": self._watch_models,
                "log levels": levels.follow,
                "sweep": self._maintenance.sweep,
                "reap": self._maintenance.reap,
                "tally": partial(self._tally.keep_adding, redis, prefix),
                **{f"lease {queue.name}": queue.lease for queue in self._queues.values()},
                **{f"heartbeat {queue.name}": queue.heartbeat for queue in self._queues.values()},
            }
        )

    async def _has_turn(self, name: str, sharing: Sharing) -> bool:
        queues = self._turns[sharing.device]
        return await self._store.turn(sharing.device, sharing.turn_s or 0, queues) == name

    async def check_health(self) -> None:
        self._loops.check()

    async def __del__(self) -> None:
        """Before shutdown: lease no more, give back what has not begun, finish what has, within the drain limit."""
        await asyncio.gather(*(queue.drain(self._drain_s) for queue in self._queues.values()))
        await self._loops.stop()
        with contextlib.suppress(RedisError):
            await self._report()
        await self._tally.add_rest(self._redis, self._prefix)
        await self._redis.aclose()
        await asyncio.to_thread(self._tracer.close)

    async def _be_present(self) -> None:
        while True:
            await self._store.mark_dispatcher_present()
            await self._report()
            await rest(_LOOK_EVERY_S)

    async def _report(self) -> None:
        for queue in self._queues.values():
            await queue.report()

    async def _look(self) -> None:
        """The net below the wake channels, which may lose messages: one look for all queues."""
        while True:
            for name in await self._store.with_work(*self._queues):
                self._queues[name].wake.set()
            await rest(_LOOK_EVERY_S)

    async def _watch_models(self) -> None:
        """Looks why there is no replica, where tasks wait for one."""
        while True:
            await rest(_LOOK_AT_MODELS_EVERY_S)
            queues = [queue for queue in self._queues.values() if queue.waits_for_replica]
            if not queues:
                continue
            replicas = await asyncio.to_thread(ray_internals.count_replicas, serve.get_replica_context().app_name)
            for queue in queues:
                counts = replicas.get(queue.name)
                queue.note_fault(counts.fault if counts else None, time.monotonic())

    async def _listen(self) -> None:
        """Hears of new work and of work to stop. Lossy; `_look` and the heartbeats find what was missed."""
        store = self._store
        wake, stop = store.channel(f"wake:{self._id}"), store.channel("stop")
        async with self._redis.pubsub() as pubsub:
            await pubsub.subscribe(stop, wake)
            messages = pubsub.listen()
            while True:
                with idle():
                    message = await anext(messages)
                if message["type"] == "subscribe":
                    # At first, or again: whatever came meanwhile was not heard, and the store calls those who hear.
                    for queue in self._queues.values():
                        queue.call()
                elif message["channel"] == stop:
                    for queue in self._queues.values():
                        queue.stop(message["data"])
                else:
                    self._queues[message["data"]].call()


def _writes(rewriter: DeploymentHandle, tasks: Collection[str]) -> dict[str, Any]:
    """Of Dependencies, what is the rewriter's part."""
    writes: dict[str, tuple[str, Write]] = {
        "rewrite": ("prompts", rewriter.rewrite.remote),
        "rewrite_edit": ("edits", partial(rewriter.rewrite.remote, edit=True)),
        "ratio": ("ratios", rewriter.ratio.remote),
    }
    return {name: write for name, (task, write) in writes.items() if task in tasks}


def classify_by(spec: ModeratorSpec, moderator: DeploymentHandle | None) -> tuple[Classify, Classify]:
    """Of texts and of objects: by the classifiers in this process, and by those of the deployment."""
    texts, objects = list[Classify](), list[Classify]()
    here, there = spec.split()
    if here.text or here.images:
        local = LocalModerator(replace(here, max_batch=_LOCAL_BATCH))
        texts += [local.moderate_text] if here.text else []
        objects += [local.moderate_object] if here.images else []
    if moderator is not None:
        texts += [moderator.moderate_text.remote] if there.text else []
        objects += [moderator.moderate_object.remote] if there.images else []

    def merge(calls: Sequence[Classify]) -> Classify:
        async def classify(what: str) -> Scores:
            return highest(await asyncio.gather(*(call(what) for call in calls)))

        return calls[0] if len(calls) == 1 else classify

    return merge(texts), merge(objects)


def _gate_options(chosen: ModerationSettings) -> dict[str, Any]:
    return {
        "call_s": chosen.call_s,
        "video_call_s": chosen.video_call_s,
        "wait_s": chosen.wait_s,
        "open_when_down": chosen.when_down == "pass",
        # A batch that is moderated and one that waits, of each replica; a video takes it long.
        "calls": Calls(2 * chosen.max_batch * chosen.max_replicas),
        "video_calls": Calls(chosen.max_replicas),
    }


def _caller(handle: DeploymentHandle, levels: LogLevels) -> Callable[[GenerationJob], Any]:
    # Built once, for the many: every `.options()` costs.
    streaming = handle.options(stream=True)

    def call(job: GenerationJob) -> Any:
        if levels.levels:
            job = replace(job, log_levels=levels.levels)
        if job.adapter is None:
            return streaming.generate.remote(job)
        # Goes to a replica that holds the tuned model, if one with room does.
        return streaming.options(multiplexed_model_id=job.adapter.id).generate.remote(job)

    return call
