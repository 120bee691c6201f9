"""Sends requests and follows each to its end: one event loop in each of some processes.

An open loop never waits for an answer before it sends the next request, as clients that know nothing of each other
don't. A server that can't keep up therefore shows it, in growing waits, instead of slowing its own load down. A closed
loop has so many requests on their way at any time, as a batch job has: it finds throughput, and says little of waits.
"""

from __future__ import annotations

import asyncio
import gc
import math
import multiprocessing
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing.connection import Connection, wait
from typing import Any, Final

import httpx2
import uvloop

from gen_serve_bench.adapters import Clock, Dialect, NotServed, OpenAIImages, Target, prepare_adapter
from gen_serve_bench.results import Outcome, WorkerStats
from gen_serve_bench.workload import Plan, Request

_LOOK_S: Final = 0.05
"""How often the loop is asked how late it is."""
_IDLE_CONNECTIONS: Final = 256
_LEAD_S: Final = 0.3
"""Between the moment that all processes are ready and the start, so that each hears of it in time."""
_PATIENCE_S: Final = 10.0
"""For processes that were told to stop."""


class GeneratorFailed(Exception):
    """A generator's process ended too early; its own words are on stderr."""


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """What one process sends."""

    requests: Sequence[Request]
    concurrency: int | None = None
    """Of a closed loop; None: each request goes at its moment."""
    seconds: float | None = None
    """Of a closed loop that goes round its requests for so long; None: each is sent once."""
    total: int = 0
    """Requests of all processes: those of further rounds are numbered on."""

    @classmethod
    def split(cls, plan: Plan, processes: int) -> list[WorkerLoad]:
        """Requests by turns; those of a closed loop have their part of the room."""
        seconds = plan.warm_up + plan.duration if plan.duration is not None and plan.concurrency else None
        rooms = [len(range(first, plan.concurrency or 0, processes)) for first in range(processes)]
        loads = [
            cls(
                plan.requests[first::processes], rooms[first] if plan.concurrency else None, seconds, len(plan.requests)
            )
            for first in range(processes)
        ]
        return [load for load in loads if load.requests and load.concurrency != 0]

    @property
    def kinds(self) -> dict[str, Request]:
        return {request.kind: request for request in self.requests}

    @property
    def until(self) -> float:
        """When the last request is sent, as far as that is known; a second, where all come at once."""
        if self.concurrency:
            return math.inf if self.seconds is None else self.seconds
        return max(1.0, *(request.moment for request in self.requests)) if self.requests else 1.0

    def in_turn(self) -> Iterator[Request]:
        """Those of a closed loop. No seed comes twice."""
        for behind in count(step=self.total) if self.seconds is not None else [0]:
            for each in self.requests:
                yield replace(each, number=each.number + behind, seed=(each.seed + behind) % 2**31)


async def generate(
    target: Target,
    load: WorkerLoad,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
    *,
    clock: Clock | None = None,
    adapter: Dialect | OpenAIImages | None = None,
    stop: asyncio.Event | None = None,
) -> tuple[list[Outcome], WorkerStats]:
    """One outcome for each request that was sent, in their order; `on_outcome` hears of each as it ends.

    Without a `clock` it begins at once. `stop` ends it early: nothing further is sent, and what is on its way counts as
    interrupted.
    """
    outcomes: list[Outcome] = []

    def record(outcome: Outcome) -> None:
        outcomes.append(outcome)
        on_outcome(outcome)

    clock, stop = clock or Clock(time.time()), stop or asyncio.Event()
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=_IDLE_CONNECTIONS)
    async with httpx2.AsyncClient(base_url=target.base_url, limits=limits, trust_env=False) as http:
        carry = _Sender(target, adapter or prepare_adapter(target, load.kinds), clock, http, record)
        if load.concurrency:
            source = load.in_turn()
            jobs = [_one_after_the_other(carry, source, load.until, stop) for _ in range(load.concurrency)]
        else:
            jobs = [carry(request) for request in load.requests]
        watch = _Watch(clock, load.until)
        looking = asyncio.create_task(watch.look())
        tasks = [asyncio.create_task(job) for job in jobs]
        everything = asyncio.gather(*tasks, return_exceptions=True)
        stop_wait = asyncio.create_task(stop.wait())
        await asyncio.wait([everything, stop_wait], return_when=asyncio.FIRST_COMPLETED)
        for task in (stop_wait, looking, *tasks):
            task.cancel()
        for each in await everything:
            if isinstance(each, Exception):
                raise each
    return sorted(outcomes, key=lambda outcome: outcome.number), WorkerStats(watch.cpu, watch.lags)


@dataclass(frozen=True, slots=True)
class _Sender:
    target: Target
    adapter: Dialect | OpenAIImages
    clock: Clock
    http: httpx2.AsyncClient
    on_end: Callable[[Outcome], None]

    async def __call__(self, request: Request) -> None:
        outcome = Outcome(request.number, request.endpoint, request.shape, request.tenant, request.moment)
        try:
            await asyncio.sleep(max(0.0, request.moment - self.clock.now()))
            async with asyncio.timeout(self.target.limit + 1):
                await self.adapter.carry(self.http, request, outcome, self.clock)
            outcome.end = "served"
        except NotServed as refusal:
            outcome.end, outcome.reason = refusal.end, refusal.reason
        except (TimeoutError, httpx2.HTTPError) as problem:
            outcome.end = "failed" if outcome.acknowledged is None else "lost"
            outcome.reason = "time is up" if isinstance(problem, TimeoutError) else type(problem).__name__
        except asyncio.CancelledError:
            outcome.end, outcome.reason = "interrupted", "the run ended before it did"
        if outcome.sent is not None:
            self.on_end(outcome)


async def _one_after_the_other(carry: _Sender, source: Iterator[Request], until: float, stop: asyncio.Event) -> None:
    """Part of a closed loop: the next request goes when the one before has ended."""
    await asyncio.sleep(max(0.0, -carry.clock.now()))
    for request in source:
        if stop.is_set() or carry.clock.now() >= until:
            return
        await carry(replace(request, moment=max(0.0, carry.clock.now())))


class _Watch:
    """Looks again and again how much later than asked for the event loop wakes it, and what the process has used."""

    def __init__(self, clock: Clock, until: float) -> None:
        self._clock, self._until = clock, until
        self.lags: list[float] = []
        self.cpu = 0.0

    async def look(self) -> None:
        await asyncio.sleep(max(0.0, -self._clock.now()))
        cpu, began = time.process_time(), time.monotonic()
        while self._clock.now() < self._until:
            before = time.monotonic()
            await asyncio.sleep(_LOOK_S)
            now = time.monotonic()
            self.lags.append(max(0.0, now - before - _LOOK_S))
            self.cpu = (time.process_time() - cpu) / (now - began)


@dataclass(slots=True)
class GeneratorRun:
    started: float
    """Epoch seconds."""
    outcomes: list[Outcome] = field(default_factory=list)
    """In the order of their requests."""
    worker_stats: list[WorkerStats] = field(default_factory=list)
    """By process."""
    interrupted: float | None = None
    """Seconds after the start at which somebody ended it."""


def run(
    target: Target, plan: Plan, processes: int = 1, on_outcome: Callable[[Outcome], None] = lambda _: None
) -> GeneratorRun:
    """Ctrl-C ends it early, and what there is is returned. Raises ValueError where the adapter can't send one of the
    requests, GeneratorFailed where a process did not do its share."""
    if processes < 1:
        raise ValueError(f"processes should be 1 or more, not {processes}")
    prepare_adapter(target, {request.kind: request for request in plan.requests})
    context, interrupted = multiprocessing.get_context("spawn"), threading.Event()
    ran, pipes, workers = GeneratorRun(started=time.time()), list[Connection](), list[Any]()
    # Processes inherit it: Ctrl-C is for this one, which tells them.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for load in WorkerLoad.split(plan, processes):
            ours, theirs = context.Pipe()
            workers.append(context.Process(target=_send, args=(theirs, target, load), daemon=True))
            workers[-1].start()
            theirs.close()
            pipes.append(ours)
        signal.signal(signal.SIGINT, lambda *_: interrupted.set())
        _collect(pipes, ran, interrupted, on_outcome)
    finally:
        signal.signal(signal.SIGINT, before)
        for pipe, process in zip(pipes, workers, strict=False):
            pipe.close()
            process.join(_PATIENCE_S)
            process.kill()
            process.join()
    ran.outcomes.sort(key=lambda outcome: outcome.number)
    return ran


def _collect(
    pipes: Sequence[Connection], ran: GeneratorRun, interrupted: threading.Event, on_outcome: Callable[[Outcome], None]
) -> None:
    """Starts all when each is ready, and hears them until none has anything left to say. Raises GeneratorFailed."""
    running, ready, last_message_at = list(pipes), 0, time.monotonic()
    while running:
        if interrupted.is_set() and ran.interrupted is None:
            ran.interrupted, last_message_at = max(0.0, time.time() - ran.started), time.monotonic()
            for pipe in running:
                _send_message(pipe, None)
        if ran.interrupted is not None and time.monotonic() > last_message_at + _PATIENCE_S:
            raise GeneratorFailed(f"{len(running)} generator processes do not stop")
        for pipe in wait(running, timeout=0.2):
            assert isinstance(pipe, Connection)
            last_message_at = time.monotonic()
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                if ran.interrupted is None:
                    raise GeneratorFailed("a generator process ended before its share was done") from None
                running.remove(pipe)
                continue
            match message:
                case Outcome():
                    ran.outcomes.append(message)
                    on_outcome(message)
                case WorkerStats():
                    ran.worker_stats.append(message)
                    running.remove(pipe)
                case _:
                    ready += 1
                    if ready == len(pipes) and ran.interrupted is None:
                        ran.started = time.time() + _LEAD_S
                        for each in running:
                            _send_message(each, ran.started)


def _send(pipe: Connection, target: Target, load: WorkerLoad) -> None:
    """What a process does: says that it is ready, hears when to start, tells outcomes and in the end its strain. A
    further word, or the end of who started it, stops it."""
    adapter = prepare_adapter(target, load.kinds)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # an open loop has no other bound
    gc.freeze()  # what was read stays to the end; looking through it again and again would make the loop late
    _send_message(pipe, "ready")
    start = _receive_message(pipe)
    if start is None:
        return

    async def send() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        threading.Thread(target=_stop_on_message, args=(pipe, loop, stop), daemon=True).start()
        clock, say = Clock(start), lambda outcome: _send_message(pipe, outcome)
        _, stats = await generate(target, load, say, clock=clock, adapter=adapter, stop=stop)
        _send_message(pipe, stats)

    uvloop.run(send())


def _stop_on_message(pipe: Connection, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    _receive_message(pipe)
    with suppress(RuntimeError):  # the loop may be gone by now: then there is nothing left to stop
        loop.call_soon_threadsafe(stop.set)


def _send_message(pipe: Connection, what: object) -> None:
    with suppress(OSError):  # nobody hears it, and whoever waits at the other end sees that
        pipe.send(what)


def _receive_message(pipe: Connection) -> float | None:
    try:
        return pipe.recv()
    except (EOFError, OSError):
        return None
