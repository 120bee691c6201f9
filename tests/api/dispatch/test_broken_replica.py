"""Broken replicas and models, over a real queue: tasks are retried, and blamed only for their own failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from ray.serve.exceptions import RequestCancelledError
from support.dispatchers import Scene
from support.replicas import Replicas
from support.tasks import with_limits
from support.virtual_backend import VirtualBackend

from deployments.backend import DeviceBroken, NotFinite
from deployments.contract.events import Event, Started
from deployments.contract.model_fault import ModelFault
from deployments.engine.requests import DEVICE_BROKEN, STORAGE_UNREACHABLE
from serve_app.dispatcher import failures
from serve_app.tasks.task import Status

TASKS = 120


def failing(call: str, error: Callable[[], Exception]) -> VirtualBackend:
    """Returns a backend whose `call` fails for every job."""

    def before(name: str, ids: list[str]) -> None:
        if name == call:
            raise error()

    return VirtualBackend(before=before)


BROKEN = {
    "a device that broke": lambda: failing("step", lambda: DeviceBroken("CUDA error: an illegal memory access")),
    "an error at every step": lambda: failing("step", lambda: RuntimeError("no such kernel")),
    "no finite result": lambda: failing("finish", NotFinite),
}


@pytest.fixture
async def replicas(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replicas]:
    monkeypatch.setattr(failures, "_PAUSE_S", 0.0)
    replicas = Replicas(monkeypatch)
    scene.call = replicas.generate
    yield replicas
    await scene.close()
    replicas.close()


@pytest.mark.parametrize(
    ("broken", "arriving"),
    [("a device that broke", True), ("an error at every step", False), ("no finite result", True)],
)
async def test_a_broken_replica_is_replaced_and_ends_no_task(
    scene: Scene, replicas: Replicas, broken: str, arriving: bool
) -> None:
    await replicas.add(BROKEN[broken]())
    await replicas.add(VirtualBackend())
    scene.dispatcher()
    ids = [] if arriving else await scene.submit(TASKS)
    for n in range(len(ids), TASKS):
        ids += await scene.submit()
        await scene.until(lambda n=n: replicas.called > n)
    tasks = await scene.wait_for_end(ids)
    assert {task.status for task in tasks} == {Status.READY}
    assert replicas.replaced == 1
    # A job may be to blame if it is the first to fail on a model that ran before. A broken device blames no job.
    assert sum(task.crashes for task in tasks) == (0 if broken == "a device that broke" else 1)


class ScriptedStream:
    def __init__(self, *events: Event) -> None:
        self._stream = events

    async def __aiter__(self) -> AsyncIterator[Event]:
        for event in self._stream:
            yield event

    def cancel(self) -> None:
        """Does nothing: the stream ends by itself."""


STORAGE, NOT_STARTED, INTERRUPTED = (Started(), STORAGE_UNREACHABLE), (DEVICE_BROKEN,), (Started(), DEVICE_BROKEN)


@pytest.mark.parametrize(
    ("events", "status", "attempts", "details"),
    [
        (STORAGE, Status.READY, 5, None),
        (NOT_STARTED, Status.READY, 5, None),
        (INTERRUPTED, Status.ERROR, 2, {"error": DEVICE_BROKEN.reason}),
    ],
    ids=["storage fault", "refused before the start", "interrupted"],
)
async def test_only_interruptions_of_started_work_end_a_task(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    events: tuple[Event, ...],
    status: Status,
    attempts: int,
    details: dict[str, Any] | None,
) -> None:
    monkeypatch.setattr(failures, "_PAUSE_S", 0.0)
    scene.store = with_limits(scene.store, max_interruptions=2)
    streams = iter([ScriptedStream(*events) for _ in range(4)])
    scene.call = lambda job: next(streams, None) or scene.model.generate(job)
    scene.dispatcher()
    (task,) = await scene.wait_for_end(await scene.submit())
    assert (task.status, task.attempt, task.crashes, task.details) == (status, attempts, 0, details)


async def test_tasks_of_a_model_that_stays_broken_end(scene: Scene) -> None:
    fault = ModelFault("/models/mine has no unet", "the model can't be loaded: … has no unet")
    calls = [NeverStarts() for _ in range(20)]
    streams = iter(calls)
    scene.call = lambda job: next(streams)
    dispatcher = scene.dispatcher()
    ids = await scene.submit(6)
    await scene.until(lambda: dispatcher.waits_for_replica)
    limit = scene.store.limits.model_broken_s
    dispatcher.note_fault(fault, 100.0)
    dispatcher.note_fault(fault, 99.0 + limit)
    assert not any(call.cancelled for call in calls)
    dispatcher.note_fault(fault, 100.0 + limit)
    for task in await scene.wait_for_end(ids):
        assert (task.status, task.details) == (Status.ERROR, {"error": fault.for_clients})


async def test_model_that_loads_again_takes_its_tasks(scene: Scene) -> None:
    scene.call = lambda job: NeverStarts() if broken else scene.model.generate(job)
    broken, dispatcher = True, scene.dispatcher()
    [first] = await scene.submit()
    await scene.until(lambda: dispatcher.waits_for_replica)
    for now in (0.0, scene.store.limits.model_broken_s):
        dispatcher.note_fault(ModelFault("gone", "gone"), now)
    await scene.wait_for_end([first])
    broken = False
    dispatcher.note_fault(None, scene.store.limits.model_broken_s + 5)
    [task] = await scene.wait_for_end(await scene.submit())
    assert task.status is Status.READY


class NeverStarts:
    """A call that waits for a replica until it is cancelled."""

    def __init__(self) -> None:
        self._cancelled = asyncio.Event()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    async def __aiter__(self) -> AsyncIterator[Event]:
        await self._cancelled.wait()
        raise RequestCancelledError
        yield

    def cancel(self) -> None:
        self._cancelled.set()
