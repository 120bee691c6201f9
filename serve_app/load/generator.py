"""Sends requests at moments fixed beforehand and follows each to its end, in one event loop.

An open loop never waits for an answer before it sends the next request, as clients that know nothing of each other
don't. A server that can't keep up therefore shows it, in growing waits, instead of slowing its own load down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import httpx2

from serve_app.load.adapters import Adapter, chosen
from serve_app.load.adapters.answers import NotServed
from serve_app.load.clock import Clock
from serve_app.load.outcome import Outcome
from serve_app.load.request import Request
from serve_app.load.target import Target

_LOOK_S: Final = 0.05
"""How often the loop is asked how late it is."""
_SHORTEST_S: Final = 1.0
"""Of looking, where requests come all at once."""
_IDLE_CONNECTIONS: Final = 256


@dataclass(frozen=True, slots=True)
class Strain:
    """What it took one process to send its share: until the last request, as waiting for the last results is idle."""

    cpu: float
    """Of one core, as a share of the time."""
    loop_lag: Sequence[float]
    """By how many seconds the event loop was late, one value for each look."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def prepared(target: Target, requests: Sequence[Request]) -> Adapter:
    """The adapter, with all made that takes time. Raises ValueError where it can't send one of the requests."""
    adapter = chosen(target)
    for request in {request.kind: request for request in requests}.values():
        # Pictures come in a few variants, by the seed.
        for seed in range(8 if request.shape.references else 1):
            adapter.prepare(replace(request, seed=seed))
    return adapter


async def generate(
    target: Target,
    requests: Sequence[Request],
    on_outcome: Callable[[Outcome], None] = lambda _: None,
    *,
    clock: Clock | None = None,
    adapter: Adapter | None = None,
    stop: asyncio.Event | None = None,
) -> tuple[list[Outcome], Strain]:
    """One outcome for each request that was sent, in their order; `on_outcome` hears of each as it ends.

    Without a `clock` it begins at once. `stop` ends it early: nothing further is sent, and what is on its way counts as
    interrupted.
    """
    clock = clock or Clock(time.time())
    carry = _Carrying(target, adapter or prepared(target, requests), clock, on_outcome)
    stop = stop or asyncio.Event()
    watch = _Watch(clock, max((request.moment for request in requests), default=0.0))
    async with _client(target) as http, watch:
        tasks = [asyncio.create_task(carry(http, request)) for request in requests]
        everything = asyncio.gather(*tasks, return_exceptions=True)
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([everything, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for task in tasks:
            task.cancel()
        ended = await everything
    for each in ended:
        if isinstance(each, Exception):
            raise each
    outcomes = [each for each in ended if isinstance(each, Outcome) and each.sent is not None]
    return outcomes, watch.strain()


@dataclass(frozen=True, slots=True)
class _Carrying:
    target: Target
    adapter: Adapter
    clock: Clock
    on_outcome: Callable[[Outcome], None]

    async def __call__(self, http: httpx2.AsyncClient, request: Request) -> Outcome:
        outcome = Outcome.of(request)
        try:
            await asyncio.sleep(max(0.0, request.moment - self.clock.now()))
            async with asyncio.timeout(self.target.limit + 1):
                await self.adapter.carry(http, request, outcome, self.clock)
            outcome.end = "served"
        except NotServed as ended:
            outcome.end, outcome.reason = ended.end, ended.reason
        except TimeoutError:
            self._gave_up(outcome, "time is up")
        except httpx2.HTTPError as problem:
            self._gave_up(outcome, type(problem).__name__)
        except asyncio.CancelledError:
            outcome.end, outcome.reason = "interrupted", "the run ended before it did"
        if outcome.sent is not None:
            self.on_outcome(outcome)
        return outcome

    def _gave_up(self, outcome: Outcome, reason: str) -> None:
        outcome.end = "failed" if outcome.acknowledged is None else "lost"
        outcome.reason = reason


def _client(target: Target) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=target.base_url,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=_IDLE_CONNECTIONS),
        trust_env=False,
    )


class _Watch:
    """Looks again and again how much later than asked for the event loop wakes it, and what the process has used."""

    def __init__(self, clock: Clock, until: float) -> None:
        self._clock = clock
        self._until = max(until, _SHORTEST_S)
        self._lags: list[float] = []
        self._cpu = 0.0
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._looking = asyncio.create_task(self._look())

    async def __aexit__(self, *_: object) -> None:
        if self._looking is not None:
            self._looking.cancel()

    def strain(self) -> Strain:
        return Strain(self._cpu, self._lags)

    async def _look(self) -> None:
        await asyncio.sleep(max(0.0, -self._clock.now()))
        cpu, began = time.process_time(), time.monotonic()
        while self._clock.now() < self._until:
            before = time.monotonic()
            await asyncio.sleep(_LOOK_S)
            now = time.monotonic()
            self._lags.append(max(0.0, now - before - _LOOK_S))
            self._cpu = (time.process_time() - cpu) / (now - began)
