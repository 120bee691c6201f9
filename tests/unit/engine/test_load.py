from __future__ import annotations

import random
from collections.abc import Callable

from support.jobs import make_job
from support.virtual_backend import VirtualBackend, VirtualClock

from deployments.contract.events import Done, Event
from deployments.contract.job import GenerationJob
from deployments.engine.loop import Engine


def latencies(*, max_running: int, max_batch: int, load: float, jobs: int = 400) -> tuple[float, list[float]]:
    """Pictures per second and sorted seconds from arrival to end, for Poisson arrivals at `load` times what one at a
    time could serve. Three sizes, 4 to 16 steps."""
    rng = random.Random(7)
    clock = VirtualClock()
    cost = {64: 1.0, 128: 1.4, 256: 2.4}

    def step_seconds(key: object, batch: int) -> float:
        assert isinstance(key, tuple)
        return cost[key[0]] * (0.003 + 0.0015 * batch)

    backend = VirtualBackend(clock, step_seconds=step_seconds, finish_seconds=0.003)
    engine = Engine(backend, max_running=max_running, max_batch=max_batch, clock=clock)
    alone = 0.005 + 8 * sum(cost.values()) / 3 * 0.0045 + 0.003
    arrivals: list[tuple[float, GenerationJob]] = []
    now = 0.0
    for n in range(jobs):
        now += rng.expovariate(load / alone)
        arrivals.append((now, make_job(str(n), size=rng.choice(list(cost)), steps=rng.choice([4, 4, 8, 16]))))
    ended: list[float] = []

    def listener(arrived: float) -> Callable[[Event], None]:
        return lambda event: ended.append(clock() - arrived) if isinstance(event, Done) else None

    pending = iter(arrivals)
    upcoming = next(pending, None)
    while upcoming is not None or engine.running or engine.waiting:
        while upcoming is not None and upcoming[0] <= clock():
            engine.submit(upcoming[1], listener(upcoming[0]))
            upcoming = next(pending, None)
        if not engine.step_once() and upcoming is not None:
            clock.now = upcoming[0]
    assert len(ended) == jobs
    return jobs / clock(), sorted(ended)


def test_batching_raises_throughput_and_tames_the_tail_in_overload() -> None:
    one_rate, one = latencies(max_running=1, max_batch=1, load=3.0)
    rate, engine = latencies(max_running=64, max_batch=8, load=3.0)
    assert rate >= 1.3 * one_rate
    assert engine[int(0.99 * len(engine))] < 0.7 * one[int(0.99 * len(one))]
