"""Comparison of this service with alternatives: `python -m benchmarks run peers`.

Every side holds the same small bundled model and draws the same requests at the requested size, in float32. In a round
each side is started, measured and stopped before the next one. The loop comes first, since loads are relative to its
throughput; the order of the others rotates. `docs/benchmarks.md` describes the figures.
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
from benchmarks.peers.request import PeerRequest, Shape, cycle_shapes
from benchmarks.peers.sides import CeleryStack, LitServe, Peer, PeerAttempt, RayBatch, StockLoop, ThisService
from benchmarks.service import CONFIG, MODEL
from benchmarks.work import ROUNDING_LEVELS, differing_images
from serve_app.config import settings

_START_S: Final = 300.0
_SHAPES: Final = tuple((side, side, steps) for steps in (4, 8) for side in (64, 128, 256))
_SQUARES: Final = ((64, 80), (512, 8))
"""Sides in pixels of the images that are drawn in one size, and how many of each."""
_THROUGHPUT, _LOST = "images/s, mixed shapes", "lost by kill -9 of the model, %"


@dataclass(frozen=True, slots=True)
class PeersPlan:
    """Counts are per side and round."""

    rounds: int = 3
    shapes: tuple[Shape, ...] = _SHAPES
    images: int = 80
    """Images of the saturated run."""
    squares: tuple[tuple[int, int], ...] = _SQUARES
    clients: int = 8
    """Concurrent clients: two full batches, so that a second one waits while the first is drawn."""
    load: float = 0.8
    """Arrivals per second, relative to the loop's throughput."""
    load_s: float = 10.0
    limit_s: float = 60.0
    """Seconds after which a request without an image counts as missing."""
    threads: int = 2
    """Torch threads of the peers and the loop: all cores, which is best for them. The service keeps its profile's."""


def measure(plan: PeersPlan, console: Console) -> Report:
    model = settings.load(CONFIG).models[MODEL]
    peer = (model.checkpoint or "bundled/flux3", plan.threads, model.max_batch)
    others: list[type[Peer]] = [CeleryStack, RayBatch, LitServe, ThisService]
    samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    faults: list[str] = []
    for number in range(plan.rounds):
        console.print(f"round {number + 1} of {plan.rounds}")
        rate, images = 0.0, list[bytes]()
        shift = number % len(others)
        for side in (StockLoop, *others[shift:], *others[:shift]):
            result = asyncio.run(_measure_side(side(*peer), plan, rate))
            for row, value in result.metrics.items():
                samples[row][side.name].append(value)
            rate = rate or result.metrics[_THROUGHPUT]
            images = images or result.sequential
            differences = differing_images(images, result.sequential, ROUNDING_LEVELS)
            faults += [f"{side.name} and the loop: {difference}" for difference in differences]
            if result.missing:
                faults.append(f"{side.name}: {result.missing} requests had no image")
    rows = {
        row: {side: round(Interval.bootstrap_median(values).middle, 4) for side, values in sides.items()}
        for row, sides in samples.items()
    }
    return Report({"sides": [side.name for side in (StockLoop, *others)], "rows": rows}, goals(rows), faults)


def goals(rows: Mapping[str, Mapping[str, float]]) -> list[Goal]:
    """Compares throughput with the best other side, and checks that the service lost no accepted task."""
    lost = rows[_LOST][ThisService.name]
    return [
        *(
            Goal(f"{row}, against the best other", "people who pay for GPUs", _ratio(sides), 1, "x", at_least=True)
            for row, sides in rows.items()
            if row.startswith("images/s")
        ),
        Goal("lost by kill -9 of the model", "people whose task it was", lost, 0, "%"),
    ]


def _ratio(sides: Mapping[str, float]) -> float:
    return sides[ThisService.name] / max(value for side, value in sides.items() if side != ThisService.name)


@dataclass(frozen=True, slots=True)
class _SideResult:
    metrics: dict[str, float]
    """Figures by row of the table."""
    sequential: list[bytes]
    """Image of each shape, drawn by one client."""
    missing: int
    """Number of requests without an image, except those around the kill."""


async def _measure_side(side: Peer, plan: PeersPlan, rate: float) -> _SideResult:
    """Starts, measures and stops a side. `rate`: the loop's images per second, 0 for the loop itself."""
    started_at = time.monotonic()
    with side:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=256)
        async with httpx2.AsyncClient(timeout=None, limits=limits, trust_env=False) as client:
            clients = _Clients(side, client, plan.limit_s)
            await _await_first_image(clients, cycle_shapes(plan.shapes, 1, seed=0)[0], started_at)
            metrics = {"start to the first image, s": time.monotonic() - started_at}
            await clients.closed_loop(cycle_shapes(plan.shapes, 2 * len(plan.shapes), seed=0), plan.clients)  # warms up
            sequential, _ = await clients.closed_loop(cycle_shapes(plan.shapes, len(plan.shapes), seed=1000), 1)
            await asyncio.sleep(1)
            metrics["memory at rest, MiB"] = side.memory_mib()
            full, seconds = await clients.closed_loop(cycle_shapes(plan.shapes, plan.images, seed=2000), plan.clients)
            metrics[_THROUGHPUT] = plan.images / seconds
            for pixels, images in plan.squares:
                requests = cycle_shapes([(pixels, pixels, 4)], images, seed=3000)
                drawn, seconds = await clients.closed_loop(requests, plan.clients)
                metrics[f"images/s, {pixels} px"] = images / seconds
                full += drawn
            per_s = plan.load * (rate or metrics[_THROUGHPUT])
            under_load = await clients.open_loop(plan, schedule("poisson", per_s, plan.load_s, seed=1))
            latencies = [one.done - one.scheduled for one in under_load if one.done is not None]
            for q, name in ((0.5, "p50"), (0.99, "p99")) if latencies else ():
                metrics[f"time to result at {plan.load:g}, {name}, s"] = quantile(latencies, q)
            if side.restarts:
                metrics |= await _measure_kill(clients, plan, per_s)
            missing = sum(not one.jpeg for one in (*sequential, *full, *under_load))
            return _SideResult(metrics, [one.jpeg for one in sequential], missing)


async def _await_first_image(clients: _Clients, request: PeerRequest, started_at: float) -> None:
    """Waits until a starting side draws its first image. Raises RuntimeError if it never does."""
    while time.monotonic() < started_at + _START_S and clients.side.processes():
        if (await clients.send(PeerAttempt(request, time.time()))).jpeg:
            return
        await asyncio.sleep(0.05)
    raise RuntimeError(f"{clients.side.name} drew nothing:\n{clients.side.log()}")


async def _measure_kill(clients: _Clients, plan: PeersPlan, per_s: float) -> dict[str, float]:
    """Kills the model's process with `kill -9` during arrivals. Raises RuntimeError if there is none."""

    async def kill() -> None:
        await asyncio.sleep(plan.load_s / 2)
        if not (pids := clients.side.model()):
            raise RuntimeError("no process of the model to kill")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    moments = schedule("constant", max(per_s, 2 / plan.load_s), plan.load_s)
    attempts, _ = await asyncio.gather(clients.open_loop(plan, moments), kill())
    # A side with a queue has accepted only the requests that got an id.
    lost = [one for one in attempts if not one.jpeg and (one.accepted or not clients.side.has_queue)]
    waits = [one.done - one.scheduled for one in attempts if one.done is not None]
    return {_LOST: 100 * len(lost) / len(attempts), "longest wait after it, s": max(waits, default=plan.limit_s)}


@dataclass(frozen=True, slots=True)
class _Clients:
    side: Peer
    client: httpx2.AsyncClient
    limit_s: float

    async def send(self, attempt: PeerAttempt) -> PeerAttempt:
        """Sends a request and waits for its image, an error or the time limit."""
        with suppress(TimeoutError, httpx2.HTTPError, OSError):
            async with asyncio.timeout(self.limit_s):
                await self.side.carry(self.client, attempt)
        return attempt

    async def closed_loop(self, requests: Iterable[PeerRequest], clients: int) -> tuple[list[PeerAttempt], float]:
        """Sends requests by several clients, each one after the other. Returns the attempts and their total seconds."""
        source, attempts, started_at = iter(requests), list[PeerAttempt](), time.perf_counter()

        async def work() -> None:
            for request in source:
                attempts.append(one := PeerAttempt(request, time.time()))
                await self.send(one)

        await asyncio.gather(*(work() for _ in range(clients)))
        return attempts, time.perf_counter() - started_at

    async def open_loop(self, plan: PeersPlan, moments: Sequence[float]) -> list[PeerAttempt]:
        """Sends a request at each moment, in seconds from now, without waiting for answers."""
        zero, requests = time.time(), cycle_shapes(plan.shapes, len(moments), seed=4000)

        async def arrive(request: PeerRequest, moment: float) -> PeerAttempt:
            await asyncio.sleep(max(0.0, zero + moment - time.time()))
            return await self.send(PeerAttempt(request, zero + moment))

        return list(await asyncio.gather(*map(arrive, requests, moments)))


BENCHMARK = Benchmark(
    "peers",
    "the service against alternatives: Celery, Ray Serve with batching, LitServe, a plain loop",
    PeersPlan(),
    PeersPlan(
        rounds=1, shapes=((64, 64, 4), (64, 96, 4)), images=4, squares=((64, 2),), clients=2, load_s=3.0, threads=1
    ),
    measure,
)
