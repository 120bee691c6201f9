"""A model deployment without Ray, which can die, hang, or not start its jobs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from ray.exceptions import ActorUnavailableError
from ray.serve.exceptions import RequestCancelledError

from deployments.contract.events import Done, Event, Progress, Started
from deployments.contract.job import GenerationJob, Output


class SimulatedStream:
    def __init__(self, model: SimulatedModel, job: GenerationJob) -> None:
        self.job = job
        self.ended: BaseException | None = None
        self._model = model
        self._changed = asyncio.Event()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._model.work(self)

    def cancel(self) -> None:
        self.end(RequestCancelledError(self.job.id))

    def end(self, reason: BaseException) -> None:
        self.ended = self.ended or reason
        self._changed.set()

    async def until(self, flag: asyncio.Event) -> None:
        """Waits for the flag; raises when the stream ends first."""
        waits = {asyncio.ensure_future(flag.wait()), asyncio.ensure_future(self._changed.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self.ended is not None:
            raise self.ended


class SimulatedModel:
    """One replica. A job with the prompt `poison` kills it when it runs; an exclusive job runs alone."""

    def __init__(self) -> None:
        self.admitting, self.finishing = asyncio.Event(), asyncio.Event()
        self.admitting.set()
        self.finishing.set()
        self.waiting: set[SimulatedStream] = set()
        self.running: set[SimulatedStream] = set()
        self.started: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.deaths = 0
        self.called: list[str] = []
        self._slots = asyncio.Condition()

    def generate(self, job: GenerationJob) -> SimulatedStream:
        self.called.append(job.id)
        return SimulatedStream(self, job)

    def die(self) -> None:
        self.deaths += 1
        for stream in self.waiting | self.running:
            stream.end(ActorUnavailableError("the replica died", None))

    async def work(self, stream: SimulatedStream) -> AsyncIterator[Event]:
        self.waiting.add(stream)
        try:
            await stream.until(self.admitting)
            await self._admit(stream)
            self.started[stream.job.id] += 1
            yield Started()
            await asyncio.sleep(0)
            yield Progress(0.5)
            if stream.job.request.prompt == "poison":
                self.die()
            await stream.until(self.finishing)
            self.finished[stream.job.id] += 1
            yield Done(Output(f"{stream.job.output_prefix}/image.png", "image/png", 1, 1, 1))
        finally:
            self.waiting.discard(stream)
            self.running.discard(stream)
            async with self._slots:
                self._slots.notify_all()

    async def _admit(self, stream: SimulatedStream) -> None:
        def free() -> bool:
            if stream.ended is not None:
                return True
            exclusive = any(running.job.exclusive for running in self.running)
            return not exclusive and not (stream.job.exclusive and self.running)

        async with self._slots:
            await self._slots.wait_for(free)
            if stream.ended is not None:
                raise stream.ended
            self.waiting.discard(stream)
            self.running.add(stream)
