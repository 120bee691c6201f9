"""Load generator: sends requests and waits for their ends, with an event loop in each of several processes.

An open loop sends requests on schedule, whatever the answers, as independent clients do: a server that can't keep up
shows growing waits instead of slowing its own load. A closed loop keeps a number of requests in flight, as a batch job
does: it finds the throughput but says little about waits.
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
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import Connection, wait
from typing import Any, Final

import httpx2
import uvloop

from gen_serve_bench.adapters import Clock, Dialect, NotServed, OpenAIImages, Target, prepare_adapter
from gen_serve_bench.outcomes import GeneratorRun, Outcome, WorkerStats
from gen_serve_bench.workload import LoadRequest, Plan

_SAMPLE_S: Final = 0.05
"""Seconds between samples of the event loop's lateness."""
_IDLE_CONNECTIONS: Final = 256
_START_DELAY_S: Final = 0.3
"""Seconds from the moment all processes are ready to the start, so that each learns of it in time."""
_STOP_S: Final = 10.0
"""Seconds in which processes have to stop."""


class GeneratorFailed(Exception):
    """A generator process ended early; its own message is on stderr."""


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """Share of the load that one process sends."""

    requests: Sequence[LoadRequest]
    concurrency: int | None = None
    """Requests in flight of a closed loop; None for an open one."""
    seconds: float | None = None
    """Seconds for which a closed loop repeats its requests; None: each is sent once."""
    total: int = 0
    """Number of requests of all processes; repeated requests get further numbers."""

    @classmethod
    def split(cls, plan: Plan, processes: int) -> list[WorkerLoad]:
        """Deals the requests, and the concurrency of a closed loop, to the processes."""
        seconds = plan.warm_up + plan.duration if plan.duration is not None and plan.concurrency else None
        loads: list[WorkerLoad] = []
        for first in range(processes):
            concurrency = len(range(first, plan.concurrency, processes)) if plan.concurrency else None
            loads.append(cls(plan.requests[first::processes], concurrency, seconds, len(plan.requests)))
        return [load for load in loads if load.requests and load.concurrency != 0]

    @property
    def kinds(self) -> dict[str, LoadRequest]:
        return {request.kind: request for request in self.requests}

    @property
    def until(self) -> float:
        """Time of the last request; infinite if unknown, and at least a second."""
        if self.concurrency:
            return math.inf if self.seconds is None else self.seconds
        return max(1.0, *(request.moment for request in self.requests)) if self.requests else 1.0

    def repeated(self) -> Iterator[LoadRequest]:
        """Yields the requests of a closed loop, each time with other seeds."""
        for offset in count(step=self.total) if self.seconds is not None else [0]:
            for each in self.requests:
                yield replace(each, number=each.number + offset, seed=(each.seed + offset) % 2**31)


async def generate(
    target: Target,
    load: WorkerLoad,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
    *,
    clock: Clock | None = None,
    adapter: Dialect | OpenAIImages | None = None,
    stop: asyncio.Event | None = None,
) -> tuple[list[Outcome], WorkerStats]:
    """Sends a load from this process. Returns the outcomes in the order of their requests; `on_outcome` gets each.

    Without a `clock` it starts at once. `stop` ends it early: requests in flight count as interrupted.
    """
    outcomes: list[Outcome] = []

    def record(outcome: Outcome) -> None:
        outcomes.append(outcome)
        on_outcome(outcome)

    clock, stop = clock or Clock(time.time()), stop or asyncio.Event()
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=_IDLE_CONNECTIONS)
    async with httpx2.AsyncClient(base_url=target.base_url, limits=limits, trust_env=False) as http:
        send = _Sender(target, adapter or prepare_adapter(target, load.kinds), clock, http, record)
        if load.concurrency:
            source = load.repeated()
            jobs = [_send_sequentially(send, source, load.until, stop) for _ in range(load.concurrency)]
        else:
            jobs = [send(request) for request in load.requests]
        monitor = _LoopMonitor(clock, load.until)
        sampling = asyncio.create_task(monitor.run())
        tasks = [asyncio.create_task(job) for job in jobs]
        all_sent = asyncio.gather(*tasks, return_exceptions=True)
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([all_sent, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in (stopped, sampling, *tasks):
            task.cancel()
        for each in await all_sent:
            if isinstance(each, Exception):
                raise each
    return sorted(outcomes, key=lambda outcome: outcome.number), WorkerStats(monitor.cpu, monitor.lags)


@dataclass(frozen=True, slots=True)
class _Sender:
    target: Target
    adapter: Dialect | OpenAIImages
    clock: Clock
    http: httpx2.AsyncClient
    on_end: Callable[[Outcome], None]

    async def __call__(self, request: LoadRequest) -> None:
        outcome = Outcome(request.number, request.endpoint, request.shape, request.tenant, request.moment)
        try:
            await asyncio.sleep(max(0.0, request.moment - self.clock.now()))
            async with asyncio.timeout(self.target.limit + 1):
                await self.adapter.carry(self.http, request, outcome, self.clock)
            outcome.end = "served"
        except NotServed as failure:
            outcome.end, outcome.reason = failure.end, failure.reason
        except (TimeoutError, httpx2.HTTPError) as problem:
            outcome.end = "failed" if outcome.acknowledged is None else "lost"
            outcome.reason = "timeout" if isinstance(problem, TimeoutError) else type(problem).__name__
        except asyncio.CancelledError:
            outcome.end, outcome.reason = "interrupted", "the run ended first"
        if outcome.sent is not None:
            self.on_end(outcome)


async def _send_sequentially(send: _Sender, source: Iterator[LoadRequest], until: float, stop: asyncio.Event) -> None:
    """Sends requests of a closed loop one after the other."""
    await asyncio.sleep(max(0.0, -send.clock.now()))
    for request in source:
        if stop.is_set() or send.clock.now() >= until:
            return
        await send(replace(request, moment=max(0.0, send.clock.now())))


class _LoopMonitor:
    """Samples how late the event loop wakes it, and the CPU of the process."""

    def __init__(self, clock: Clock, until: float) -> None:
        self._clock, self._until = clock, until
        self.lags: list[float] = []
        self.cpu = 0.0

    async def run(self) -> None:
        await asyncio.sleep(max(0.0, -self._clock.now()))
        cpu, started_at = time.process_time(), time.monotonic()
        while self._clock.now() < self._until:
            before = time.monotonic()
            await asyncio.sleep(_SAMPLE_S)
            now = time.monotonic()
            self.lags.append(max(0.0, now - before - _SAMPLE_S))
            self.cpu = (time.process_time() - cpu) / (now - started_at)


def run(
    target: Target, plan: Plan, processes: int = 1, on_outcome: Callable[[Outcome], None] = lambda _: None
) -> GeneratorRun:
    """Runs a plan. Ctrl-C ends it early with the outcomes so far.

    Raises ValueError if the adapter can't send one of the requests, GeneratorFailed if a process fails.
    """
    if processes < 1:
        raise ValueError(f"processes should be 1 or more, not {processes}")
    prepare_adapter(target, {request.kind: request for request in plan.requests})
    context, interrupted = multiprocessing.get_context("spawn"), threading.Event()
    result, pipes, workers = GeneratorRun(started=time.time()), list[Connection](), list[Any]()
    # The processes inherit this, so that Ctrl-C reaches only this one, which stops them.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for load in WorkerLoad.split(plan, processes):
            ours, theirs = context.Pipe()
            workers.append(context.Process(target=_send, args=(theirs, target, load), daemon=True))
            workers[-1].start()
            theirs.close()
            pipes.append(ours)
        signal.signal(signal.SIGINT, lambda *_: interrupted.set())
        _collect(pipes, result, interrupted, on_outcome)
    finally:
        signal.signal(signal.SIGINT, before)
        for pipe, process in zip(pipes, workers, strict=False):
            pipe.close()
            process.join(_STOP_S)
            process.kill()
            process.join()
    result.outcomes.sort(key=lambda outcome: outcome.number)
    return result


def _collect(
    pipes: Sequence[Connection],
    result: GeneratorRun,
    interrupted: threading.Event,
    on_outcome: Callable[[Outcome], None],
) -> None:
    """Starts the processes when all are ready and receives their messages to the end. Raises GeneratorFailed."""
    running, ready, last_message_at = list(pipes), 0, time.monotonic()
    while running:
        if interrupted.is_set() and result.interrupted is None:
            result.interrupted, last_message_at = max(0.0, time.time() - result.started), time.monotonic()
            for pipe in running:
                _send_message(pipe, None)
        if result.interrupted is not None and time.monotonic() > last_message_at + _STOP_S:
            raise GeneratorFailed(f"{len(running)} generator processes do not stop")
        for pipe in wait(running, timeout=0.2):
            assert isinstance(pipe, Connection)
            last_message_at = time.monotonic()
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                if result.interrupted is None:
                    raise GeneratorFailed("a generator process ended before its share was done") from None
                running.remove(pipe)
                continue
            match message:
                case Outcome():
                    result.outcomes.append(message)
                    on_outcome(message)
                case WorkerStats():
                    result.worker_stats.append(message)
                    running.remove(pipe)
                case _:
                    ready += 1
                    if ready == len(pipes) and result.interrupted is None:
                        result.started = time.time() + _START_DELAY_S
                        for each in running:
                            _send_message(each, result.started)


def _send(pipe: Connection, target: Target, load: WorkerLoad) -> None:
    """Entry point of a process: sends "ready", receives the start time, then sends its outcomes and its WorkerStats.

    A further message, or the end of the parent process, stops it.
    """
    adapter = prepare_adapter(target, load.kinds)
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # an open loop needs a socket per request in flight
    gc.freeze()  # the requests stay to the end; scanning them repeatedly would delay the loop
    _send_message(pipe, "ready")
    start = _receive_message(pipe)
    if start is None:
        return

    async def send() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        threading.Thread(target=_stop_on_message, args=(pipe, loop, stop), daemon=True).start()
        clock, report = Clock(start), lambda outcome: _send_message(pipe, outcome)
        _, stats = await generate(target, load, report, clock=clock, adapter=adapter, stop=stop)
        _send_message(pipe, stats)

    uvloop.run(send())


def _stop_on_message(pipe: Connection, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    _receive_message(pipe)
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(stop.set)


def _send_message(pipe: Connection, message: object) -> None:
    with suppress(OSError):  # the other end has closed, and is handled where it is read
        pipe.send(message)


def _receive_message(pipe: Connection) -> float | None:
    try:
        return pipe.recv()
    except (EOFError, OSError):
        return None
