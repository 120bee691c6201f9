"""Replicas of a model without Ray: the real deployment and engine, each on its own virtual backend.

`Replicas` plays Ray Serve: it routes calls to the replica with the fewest and checks the replicas' health.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import NoReturn

import pytest
from ray.serve.exceptions import RequestCancelledError

from deployments import replica as media_model
from deployments.contract.events import LAST, Event
from deployments.contract.job import GenerationJob
from deployments.contract.model import ModelSpec
from deployments.engine.loop import Engine
from deployments.replica import MediaModel
from support.virtual_backend import VirtualBackend

_CALLS_PER_CHECK = 20
"""Calls between health checks: two seconds at ten calls a second."""
_CHECKS_TO_FAIL = 3
"""Failed checks in a row before Serve replaces a replica that still runs."""


class ProcessEnded(BaseException):
    """Replaces the exit of a replica's process, which would end the tests."""


def in_this_process(patch: pytest.MonkeyPatch) -> None:
    """Makes a deployment raise `ProcessEnded` instead of exiting."""

    def end(status: int) -> NoReturn:
        raise ProcessEnded(status)

    patch.setattr(media_model.os, "_exit", end)
    patch.setattr(media_model, "_DRAIN_TIMEOUT_S", 0.0)


async def deploy_replica(backend: VirtualBackend, patch: pytest.MonkeyPatch) -> MediaModel:
    """Returns a deployment with its own engine, which runs in threads."""
    patch.setattr(media_model, "build_engine", lambda spec, text_encoder: Engine(backend, max_running=8, max_batch=8))
    replica = MediaModel.__new__(MediaModel)
    await MediaModel.__init__(
        replica, ModelSpec(checkpoint="virtual", objects_url="memory:///")
    )  # the way Ray Serve calls it
    return replica


class Replica:
    def __init__(self, media: MediaModel) -> None:
        self.media = media
        self.calls: set[ReplicaStream] = set()
        self.failed_checks = 0


class ReplicaStream:
    def __init__(self, replicas: Replicas, job: GenerationJob) -> None:
        self.job = job
        self._replicas = replicas
        self._events: asyncio.Queue[Event | BaseException] = asyncio.Queue()
        self._work: asyncio.Task[None] | None = None

    async def __aiter__(self) -> AsyncIterator[Event]:
        self._work = asyncio.create_task(self._follow())
        while not isinstance(event := await self._events.get(), BaseException):
            yield event
            if isinstance(event, LAST):
                return
        raise event

    def cancel(self) -> None:
        self.end(RequestCancelledError(self.job.id))

    def end(self, reason: BaseException) -> None:
        if self._work is not None:
            self._work.cancel()
        self._events.put_nowait(reason)

    async def _follow(self) -> None:
        replica = await self._replicas.enter(self)
        try:
            async for event in replica.media.generate(self.job):
                self._events.put_nowait(event)
        finally:
            replica.calls.discard(self)


class Replicas:
    """Routes calls to replicas and replaces broken ones by ones without faults."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.replaced = 0
        self._patch = patch
        self._replicas: list[Replica] = []
        self.called = 0
        self._ties = random.Random(1)
        in_this_process(patch)

    async def add(self, backend: VirtualBackend) -> None:
        self._replicas.append(Replica(await deploy_replica(backend, self._patch)))

    def generate(self, job: GenerationJob) -> ReplicaStream:
        return ReplicaStream(self, job)

    async def enter(self, stream: ReplicaStream) -> Replica:
        self.called += 1
        if self.called % _CALLS_PER_CHECK == 0:
            await self._check()
        replica = min(self._replicas, key=lambda one: (len(one.calls), self._ties.random()))
        replica.calls.add(stream)
        return replica

    def close(self) -> None:
        for replica in self._replicas:
            replica.media._engine.stop()

    async def _check(self) -> None:
        for replica in list(self._replicas):
            try:
                await replica.media.check_health()
                replica.failed_checks = 0
            except RuntimeError:
                replica.failed_checks += 1
                if replica.failed_checks >= _CHECKS_TO_FAIL:
                    await self._replace(replica)
            except ProcessEnded:
                async with asyncio.timeout(5):
                    while replica.calls:  # each gets its last event before the process ends
                        await asyncio.sleep(0)
                await self._replace(replica)

    async def _replace(self, replica: Replica) -> None:
        """Replaces a replica, which finishes its calls: Serve lets it drain."""
        self._replicas.remove(replica)
        self.replaced += 1
        await self.add(VirtualBackend())
