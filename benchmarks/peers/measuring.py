"""One side in one round: everything that is measured of it, while no other side runs."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median

from gen_serve_bench.workload import schedule

from benchmarks.peers.asked import Asked, at_a_time, at_moments
from benchmarks.peers.plan import Plan
from benchmarks.peers.request import Request, Shape, in_turns
from benchmarks.peers.side import Asking, Queued, Side

_START_S = 300.0
_SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Solo:
    """What the loop does in a round: what loads and limits are measured by."""

    seconds: Mapping[Shape, float]
    """That a picture takes alone."""
    rate: float
    """Pictures per second of the mixed shapes."""


@dataclass(frozen=True, slots=True)
class Killed:
    """What became of the requests around a kill."""

    sent: int
    refused: int
    """Got no id, where there are ids: whoever asked knows, and nothing was promised."""
    lost: int
    """Accepted, or sent where there are no ids, and never drawn."""
    told: int
    """Of the lost, those that were answered with an error at least."""
    longest_s: float | None
    """Until the last picture that still came was there."""


@dataclass(slots=True)
class Measured:
    """One side in one round."""

    start_s: float = 0.0
    """From the start of its processes to its first picture."""
    memory_mib: float = 0.0
    pictures_per_s: dict[str, float] = field(default_factory=dict)
    """By `ONE_SHAPE` and `MIXED`."""
    open_loop: dict[float, list[Asked]] = field(default_factory=dict)
    """By load."""
    submit_cpu_ms: float | None = None
    poll_cpu_ms: float | None = None
    handoffs: list[Asked] = field(default_factory=list)
    killed: dict[str, Killed] = field(default_factory=dict)
    solo: dict[Shape, list[Asked]] = field(default_factory=dict)
    """Pictures drawn alone, from the same seeds by all sides."""
    judged: list[Asked] = field(default_factory=list)
    """All requests that must have had their picture."""


def measure(side: Side, plan: Plan, solo: Solo | None) -> Measured:
    """Starts the side and ends it. `solo` is None for the loop itself, which tells what it takes."""
    began = time.monotonic()
    with side:
        return asyncio.run(_measured(side, plan, solo, began))


def solo_of(measured: Measured) -> Solo:
    """Of the loop. Raises RuntimeError where a picture is missing."""
    totals = {shape: [one.total for one in asked if one.total is not None] for shape, asked in measured.solo.items()}
    if not all(totals.values()):
        raise RuntimeError("the loop did not draw all shapes")
    return Solo({shape: median(seconds) for shape, seconds in totals.items()}, measured.pictures_per_s[MIXED])


ONE_SHAPE, MIXED = "one shape", "mixed shapes"


async def _measured(side: Side, plan: Plan, solo: Solo | None, began: float) -> Measured:
    made = Measured()

    def first() -> Asked:
        return Asked.now(in_turns(plan.shapes, 1, seed=0)[0])

    async with Asking(side, _START_S) as asking:
        await asking.ask_until_drawn(first)
        made.start_s = time.monotonic() - began
    async with Asking(side, plan.limit_s) as asking:
        await _warm_up(asking, plan, made)
        await asyncio.sleep(_SETTLE_S)
        made.memory_mib = side.memory_mib()
        await _saturate(asking, plan, made)
        reference = solo or solo_of(made)
        await _hand_off(asking, plan, made)
        if isinstance(side, Queued):
            await _cost(side, asking, plan, made)
        for load in plan.loads:
            made.open_loop[load] = await _arrivals(asking, plan, load * reference.rate, plan.load_s)
            await asking.collect(made.open_loop[load])
            made.judged += made.open_loop[load]
        for name, victims in side.victims().items():
            await asking.ask_until_drawn(first)  # whoever was killed before has a successor, and tells its process
            made.killed[name] = await _kill(asking, plan, plan.kill_load * reference.rate, victims)
    return made


async def _warm_up(asking: Asking, plan: Plan, made: Measured) -> None:
    """Every shape: once uncounted, then alone, then in full batches."""
    for shape in plan.shapes:
        alone, _ = await at_a_time(asking.ask, in_turns([shape], 1 + plan.solos, seed=0), clients=1)
        together, _ = await at_a_time(asking.ask, in_turns([shape], plan.clients, seed=100), plan.clients)
        await asking.collect([*alone, *together])
        made.solo[shape] = alone[1:]
        made.judged += [*alone, *together]


async def _saturate(asking: Asking, plan: Plan, made: Measured) -> None:
    for name, shapes in ((ONE_SHAPE, [plan.one_shape]), (MIXED, plan.shapes)):
        requests = in_turns(shapes, plan.pictures, seed=1000)
        asked, seconds = await at_a_time(asking.ask, requests, plan.clients)
        await asking.collect(asked)
        made.judged += asked
        made.pictures_per_s[name] = sum(one.drawn for one in asked) / seconds


async def _hand_off(asking: Asking, plan: Plan, made: Measured) -> None:
    width, height, _ = plan.shapes[0]
    for request in in_turns([(width, height, 1)], plan.handoffs, seed=2000):
        await asyncio.sleep(plan.pause_s)
        made.handoffs.append(asked := Asked.now(request))
        await asking.ask(asked)
    await asking.collect(made.handoffs)
    made.judged += made.handoffs


async def _cost(side: Queued, asking: Asking, plan: Plan, made: Measured) -> None:
    """Submissions one after the other, then, once all pictures are there, as many polls of them."""
    requests = in_turns([(*plan.shapes[0][:2], 1)], plan.requests, seed=3000)
    before = side.front_cpu()
    addresses = [await side.submit(asking.client, request) for request in requests]
    made.submit_cpu_ms = 1000 * (side.front_cpu() - before) / len(addresses)
    give_up = time.monotonic() + _START_S
    for address in addresses:
        while not (await side.poll(asking.client, address)).address:
            if time.monotonic() > give_up:
                raise RuntimeError(f"{side.name} does not get done")
            await asyncio.sleep(_SETTLE_S)
    before = side.front_cpu()
    for address in addresses:
        await side.poll(asking.client, address)
    made.poll_cpu_ms = 1000 * (side.front_cpu() - before) / len(addresses)


async def _arrivals(asking: Asking, plan: Plan, rate: float, seconds: float) -> list[Asked]:
    """The same moments and requests for all sides of a round."""
    moments = schedule("poisson", rate, seconds, seed=1)
    return await at_moments(asking.ask, in_turns(plan.shapes, len(moments), seed=4000), moments)


async def _kill(asking: Asking, plan: Plan, rate: float, victims: Callable[[], Sequence[int]]) -> Killed:
    """`kill -9` in the midst of arrivals. Raises RuntimeError where there is nobody to kill."""

    async def kill() -> None:
        await asyncio.sleep(plan.kill_s / 2)
        pids = victims()
        if not pids:
            raise RuntimeError("nobody to kill")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    moments = schedule("constant", max(rate, 2 / plan.kill_s), plan.kill_s)
    requests: list[Request] = in_turns(plan.shapes, len(moments), seed=5000)
    asked, _ = await asyncio.gather(at_moments(asking.ask, requests, moments), kill())
    await asking.collect(asked)
    missing = [one for one in asked if not one.drawn]
    refused = [one for one in missing if isinstance(asking.side, Queued) and one.accepted is None]
    waits = [one.total for one in asked if one.total is not None]
    return Killed(
        sent=len(asked),
        refused=len(refused),
        lost=len(missing) - len(refused),
        told=sum(bool(one.problem) and not one.timed_out for one in missing) - len(refused),
        longest_s=max(waits, default=None),
    )
