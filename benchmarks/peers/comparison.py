"""This service beside what people would build instead: `python -m benchmarks run peers`.

Every side holds the same small bundled model and draws the same images: requests of the same prompts, seeds, sizes
and steps, rendered at the size that is asked for, in float32. In a round each side is started, measured and ended
before the next one starts, so that only one runs at a time and every figure spans several processes; the loop comes
first, since loads are told in what it draws, and the others' order turns with the rounds. `docs/benchmarks.md` says
what is measured, and what it is not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import httpx2
from gen_serve_bench.results import quantile
from gen_serve_bench.workload import schedule
from rich.console import Console

from benchmarks.harness import Benchmark, Goal, Interval, Report
from benchmarks.peers.request import Request, Shape, in_turns
from benchmarks.peers.sides import Attempt, CeleryStack, LitServe, Loop, RayBatch, Side, ThisService
from benchmarks.service import CONFIG, MODEL
from benchmarks.work import ROUNDED, unlike
from serve_app.config import settings

_START_S: Final = 300.0
_SHAPES: Final = tuple((side, side, steps) for steps in (4, 8) for side in (64, 128, 256))
_SQUARES: Final = ((64, 80), (512, 8))
"""Sides of images that are drawn alone, in pixels, and how many of each."""
_THROUGHPUT, _LOST = "images/s, mixed shapes", "lost by kill -9 of the model, %"


@dataclass(frozen=True, slots=True)
class Plan:
    """Counts are per side and round."""

    rounds: int = 3
    shapes: tuple[Shape, ...] = _SHAPES
    images: int = 80
    """Of the saturated run."""
    squares: tuple[tuple[int, int], ...] = _SQUARES
    clients: int = 8
    """At a time: two full batches, so that whoever batches has the next one waiting."""
    load: float = 0.8
    """Arrivals per second, as a share of what the loop draws."""
    load_s: float = 10.0
    limit_s: float = 60.0
    """A request that has no image after so many seconds has none."""
    threads: int = 2
    """Of the peers and the loop: all cores, which serves them best. The service has what its profile gives it."""


def measure(plan: Plan, console: Console) -> Report:
    model = settings.load(CONFIG).models[MODEL]
    peer = (model.checkpoint or "bundled/flux3", plan.threads, model.max_batch)
    others: list[type[Side]] = [CeleryStack, RayBatch, LitServe, ThisService]
    samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    faults: list[str] = []
    for number in range(plan.rounds):
        console.print(f"round {number + 1} of {plan.rounds}")
        rate, images = 0.0, list[bytes]()
        turn = number % len(others)
        for kind in (Loop, *others[turn:], *others[:turn]):
            result = asyncio.run(_measure_side(kind(*peer), plan, rate))
            for row, value in result.metrics.items():
                samples[row][kind.name].append(value)
            rate = rate or result.metrics[_THROUGHPUT]
            images = images or result.alone
            faults += [f"{kind.name} and the loop: {what}" for what in unlike(images, result.alone, ROUNDED)]
            if result.missing:
                faults.append(f"{kind.name}: {result.missing} requests had no image")
    rows = {
        row: {side: round(Interval.bootstrap_median(values).middle, 4) for side, values in sides.items()}
        for row, sides in samples.items()
    }
    return Report({"sides": [kind.name for kind in (Loop, *others)], "rows": rows}, goals(rows), faults)


def goals(rows: Mapping[str, Mapping[str, float]]) -> list[Goal]:
    """What a service is for, against the best of the others; and that it keeps what it accepted."""
    lost = rows[_LOST][ThisService.name]
    return [
        *(
            Goal(f"{row}, against the best other", "whoever pays for GPUs", _ratio(sides), 1, "x", at_least=True)
            for row, sides in rows.items()
            if row.startswith("images/s")
        ),
        Goal("lost by kill -9 of the model", "everyone whose task it was", lost, 0, "%"),
    ]


def _throughput(pixels: int) -> str:
    return f"images/s, {pixels} px"


def _ratio(sides: Mapping[str, float]) -> float:
    return sides[ThisService.name] / max(value for side, value in sides.items() if side != ThisService.name)


@dataclass(frozen=True, slots=True)
class _SideResult:
    metrics: dict[str, float]
    """By what they measure."""
    alone: list[bytes]
    """One image of each shape, drawn while nobody else asked."""
    missing: int
    """Requests without an image, but for those around the kill."""


async def _measure_side(side: Side, plan: Plan, rate: float) -> _SideResult:
    """Starts the side and ends it. `rate` is what the loop draws in a second, 0 for the loop itself."""
    began = time.monotonic()
    with side:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=256)
        async with httpx2.AsyncClient(timeout=None, limits=limits, trust_env=False) as client:
            clients = _Clients(side, client, plan.limit_s)
            await _await_first_image(clients, in_turns(plan.shapes, 1, seed=0)[0], began)
            metrics = {"start to the first image, s": time.monotonic() - began}
            await clients.at_a_time(in_turns(plan.shapes, 2 * len(plan.shapes), seed=0), plan.clients)  # warms up
            alone, _ = await clients.at_a_time(in_turns(plan.shapes, len(plan.shapes), seed=1000), 1)
            await asyncio.sleep(1)
            metrics["memory at rest, MiB"] = side.memory_mib()
            full, seconds = await clients.at_a_time(in_turns(plan.shapes, plan.images, seed=2000), plan.clients)
            metrics[_THROUGHPUT] = plan.images / seconds
            for pixels, images in plan.squares:
                requests = in_turns([(pixels, pixels, 4)], images, seed=3000)
                drawn, seconds = await clients.at_a_time(requests, plan.clients)
                metrics[_throughput(pixels)] = images / seconds
                full += drawn
            per_s = plan.load * (rate or metrics[_THROUGHPUT])
            under_load = await clients.at_moments(plan, schedule("poisson", per_s, plan.load_s, seed=1))
            took = [one.done - one.scheduled for one in under_load if one.done is not None]
            for q, name in ((0.5, "p50"), (0.99, "p99")) if took else ():
                metrics[f"time to result at {plan.load:g}, {name}, s"] = quantile(took, q)
            if side.restarts:
                metrics |= await _measure_kill(clients, plan, per_s)
            missing = sum(not one.jpeg for one in (*alone, *full, *under_load))
            return _SideResult(metrics, [one.jpeg for one in alone], missing)


async def _await_first_image(clients: _Clients, request: Request, began: float) -> None:
    """The first image of a side that is still starting. Raises RuntimeError."""
    while time.monotonic() < began + _START_S and clients.side.processes():
        if (await clients.ask(Attempt(request, time.time()))).jpeg:
            return
        await asyncio.sleep(0.05)
    raise RuntimeError(f"{clients.side.name} drew nothing:\n{clients.side.log()}")


async def _measure_kill(clients: _Clients, plan: Plan, per_s: float) -> dict[str, float]:
    """`kill -9` of the process that holds the model, in the midst of arrivals. Raises RuntimeError without one."""

    async def kill() -> None:
        await asyncio.sleep(plan.load_s / 2)
        if not (pids := clients.side.model()):
            raise RuntimeError("nobody to kill")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    moments = schedule("constant", max(per_s, 2 / plan.load_s), plan.load_s)
    attempts, _ = await asyncio.gather(clients.at_moments(plan, moments), kill())
    # One that got no id, where there are ids, was promised nothing.
    lost = [one for one in attempts if not one.jpeg and (one.accepted or not clients.side.has_queue)]
    waits = [one.done - one.scheduled for one in attempts if one.done is not None]
    return {_LOST: 100 * len(lost) / len(attempts), "longest wait after it, s": max(waits, default=plan.limit_s)}


@dataclass(frozen=True, slots=True)
class _Clients:
    """The clients of a side."""

    side: Side
    client: httpx2.AsyncClient
    limit_s: float

    async def ask(self, attempt: Attempt) -> Attempt:
        """To the end, whichever that is."""
        with suppress(TimeoutError, httpx2.HTTPError, OSError):
            async with asyncio.timeout(self.limit_s):
                await self.side.carry(self.client, attempt)
        return attempt

    async def at_a_time(self, requests: Iterable[Request], clients: int) -> tuple[list[Attempt], float]:
        """So many clients, each with its next request when it has its last image. Also how many seconds that took."""
        source, attempts, began = iter(requests), list[Attempt](), time.perf_counter()

        async def work() -> None:
            for request in source:
                attempts.append(one := Attempt(request, time.time()))
                await self.ask(one)

        await asyncio.gather(*(work() for _ in range(clients)))
        return attempts, time.perf_counter() - began

    async def at_moments(self, plan: Plan, moments: Sequence[float]) -> list[Attempt]:
        """Each request at its moment, seconds from now, whatever became of those before."""
        zero, requests = time.time(), in_turns(plan.shapes, len(moments), seed=4000)

        async def arrive(request: Request, moment: float) -> Attempt:
            await asyncio.sleep(max(0.0, zero + moment - time.time()))
            return await self.ask(Attempt(request, zero + moment))

        return list(await asyncio.gather(*map(arrive, requests, moments)))


BENCHMARK = Benchmark(
    "peers",
    "the service beside what people would build instead: Celery, Ray Serve with batching, LitServe, a plain loop",
    Plan(),
    Plan(rounds=1, shapes=((64, 64, 4), (64, 96, 4)), images=4, squares=((64, 2),), clients=2, load_s=3.0, threads=1),
    measure,
)
