"""This service beside what people would build instead: `python -m benchmarks run peers`.

Every side holds the same small bundled model and draws the same pictures: requests of the same prompts, seeds, sizes
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
from benchmarks.peers.sides import Asked, CeleryStack, LitServe, Loop, RayBatch, Side, ThisService
from benchmarks.service import CONFIG, MODEL
from benchmarks.work import ROUNDED, unlike
from serve_app.config import settings

_START_S: Final = 300.0
_SHAPES: Final = tuple((side, side, steps) for steps in (4, 8) for side in (64, 128, 256))
_THROUGHPUT, _LOST = "pictures/s, mixed shapes", "lost by kill -9 of the model, %"


@dataclass(frozen=True, slots=True)
class Plan:
    """Counts are per side and round."""

    rounds: int = 5
    shapes: tuple[Shape, ...] = _SHAPES
    pictures: int = 80
    """Of the saturated run."""
    clients: int = 8
    """At a time: two full batches, so that whoever batches has the next one waiting."""
    load: float = 0.8
    """Arrivals per second, as a share of what the loop draws."""
    load_s: float = 10.0
    limit_s: float = 60.0
    """A request that has no picture after so many seconds has none."""
    threads: int = 2
    """Of the peers and the loop: all cores, which serves them best. The service has what its profile gives it."""


def measure(plan: Plan, console: Console) -> Report:
    model = settings.load(CONFIG).models[MODEL]
    peer = (model.checkpoint or "bundled/flux3", plan.threads, model.max_batch)
    others: list[type[Side]] = [CeleryStack, RayBatch, LitServe, ThisService]
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    faults: list[str] = []
    for number in range(plan.rounds):
        console.print(f"round {number + 1} of {plan.rounds}")
        rate, pictures = 0.0, list[bytes]()
        turn = number % len(others)
        for kind in (Loop, *others[turn:], *others[:turn]):
            measured = asyncio.run(_measured(kind(*peer), plan, rate))
            for row, value in measured.figures.items():
                found[row][kind.name].append(value)
            rate = rate or measured.figures[_THROUGHPUT]
            pictures = pictures or measured.alone
            faults += [f"{kind.name} and the loop: {what}" for what in unlike(pictures, measured.alone, ROUNDED)]
            if measured.missing:
                faults.append(f"{kind.name}: {measured.missing} requests had no picture")
    rows = {
        row: {side: round(Interval.of_median(of).middle, 4) for side, of in sides.items()}
        for row, sides in found.items()
    }
    return Report({"sides": [kind.name for kind in (Loop, *others)], "rows": rows}, goals(rows), faults)


def goals(rows: Mapping[str, Mapping[str, float]]) -> list[Goal]:
    """What a service is for, against the best of the others; and that it keeps what it accepted."""
    own, best = rows[_THROUGHPUT][ThisService.name], rows[_THROUGHPUT]
    ratio = own / max(value for side, value in best.items() if side != ThisService.name)
    lost = rows[_LOST][ThisService.name]
    return [
        Goal("pictures/s, mixed shapes, against the best other", "whoever pays for GPUs", ratio, 1, "x", at_least=True),
        Goal("lost by kill -9 of the model", "everyone whose task it was", lost, 0, "%"),
    ]


@dataclass(frozen=True, slots=True)
class _Measured:
    figures: dict[str, float]
    """By what they measure."""
    alone: list[bytes]
    """One picture of each shape, drawn while nobody else asked."""
    missing: int
    """Requests without a picture, but for those around the kill."""


async def _measured(side: Side, plan: Plan, rate: float) -> _Measured:
    """Starts the side and ends it. `rate` is what the loop draws in a second, 0 for the loop itself."""
    began = time.monotonic()
    with side:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=256)
        async with httpx2.AsyncClient(timeout=None, limits=limits, trust_env=False) as client:
            asking = _Asking(side, client, plan.limit_s)
            await _ask_until_drawn(asking, in_turns(plan.shapes, 1, seed=0)[0], began)
            figures = {"start to the first picture, s": time.monotonic() - began}
            await asking.at_a_time(in_turns(plan.shapes, 2 * len(plan.shapes), seed=0), plan.clients)  # warms up
            alone, _ = await asking.at_a_time(in_turns(plan.shapes, len(plan.shapes), seed=1000), 1)
            await asyncio.sleep(1)
            figures["memory at rest, MiB"] = side.memory_mib()
            full, seconds = await asking.at_a_time(in_turns(plan.shapes, plan.pictures, seed=2000), plan.clients)
            figures[_THROUGHPUT] = plan.pictures / seconds
            per_s = plan.load * (rate or figures[_THROUGHPUT])
            loaded = await asking.at_moments(plan, schedule("poisson", per_s, plan.load_s, seed=1))
            took = [one.done - one.scheduled for one in loaded if one.done is not None]
            for q, name in ((0.5, "p50"), (0.99, "p99")) if took else ():
                figures[f"time to result at {plan.load:g}, {name}, s"] = quantile(took, q)
            if side.restarted:
                figures |= await _killed(asking, plan, per_s)
            missing = sum(not one.jpeg for one in (*alone, *full, *loaded))
            return _Measured(figures, [one.jpeg for one in alone], missing)


async def _ask_until_drawn(asking: _Asking, request: Request, began: float) -> None:
    """The first picture of a side that is still starting. Raises RuntimeError."""
    while time.monotonic() < began + _START_S and asking.side.processes():
        if (await asking.ask(Asked(request, time.time()))).jpeg:
            return
        await asyncio.sleep(0.05)
    raise RuntimeError(f"{asking.side.name} drew nothing:\n{asking.side.log()}")


async def _killed(asking: _Asking, plan: Plan, per_s: float) -> dict[str, float]:
    """`kill -9` of the process that holds the model, in the midst of arrivals. Raises RuntimeError without one."""

    async def kill() -> None:
        await asyncio.sleep(plan.load_s / 2)
        if not (pids := asking.side.model()):
            raise RuntimeError("nobody to kill")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    moments = schedule("constant", max(per_s, 2 / plan.load_s), plan.load_s)
    asked, _ = await asyncio.gather(asking.at_moments(plan, moments), kill())
    # One that got no id, where there are ids, was promised nothing.
    lost = [one for one in asked if not one.jpeg and (one.accepted or not asking.side.queued)]
    waits = [one.done - one.scheduled for one in asked if one.done is not None]
    return {_LOST: 100 * len(lost) / len(asked), "longest wait after it, s": max(waits, default=plan.limit_s)}


@dataclass(frozen=True, slots=True)
class _Asking:
    """The clients of a side."""

    side: Side
    client: httpx2.AsyncClient
    limit_s: float

    async def ask(self, asked: Asked) -> Asked:
        """To the end, whichever that is."""
        with suppress(TimeoutError, httpx2.HTTPError, OSError):
            async with asyncio.timeout(self.limit_s):
                await self.side.carry(self.client, asked)
        return asked

    async def at_a_time(self, requests: Iterable[Request], clients: int) -> tuple[list[Asked], float]:
        """So many clients, each with its next request when it has its last picture. Also how many seconds that took."""
        source, asked, began = iter(requests), list[Asked](), time.perf_counter()

        async def work() -> None:
            for request in source:
                asked.append(one := Asked(request, time.time()))
                await self.ask(one)

        await asyncio.gather(*(work() for _ in range(clients)))
        return asked, time.perf_counter() - began

    async def at_moments(self, plan: Plan, moments: Sequence[float]) -> list[Asked]:
        """Each request at its moment, seconds from now, whatever became of those before."""
        zero, requests = time.time(), in_turns(plan.shapes, len(moments), seed=4000)

        async def arrive(request: Request, moment: float) -> Asked:
            await asyncio.sleep(max(0.0, zero + moment - time.time()))
            return await self.ask(Asked(request, zero + moment))

        return list(await asyncio.gather(*map(arrive, requests, moments)))


BENCHMARK = Benchmark(
    "peers",
    "the service beside what people would build instead: Celery, Ray Serve with batching, LitServe, a plain loop",
    Plan(),
    Plan(rounds=1, shapes=((64, 64, 4), (64, 96, 4)), pictures=4, clients=2, load_s=3.0, threads=1),
    measure,
)
