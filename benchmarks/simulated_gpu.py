"""What the engine's policy would do on a GPU, on paper: no GPU is used, and none of these figures was measured.

The engine of the service, with its real policy and cost model, runs on a virtual clock over a backend whose calls take
the time that is *assumed* of a GPU: a step 20 ms + 4 µs a token + 5.1 ns a token squared, which makes 29 ms for a
picture of 512 px alone and 95 for eight, 122 and 836 ms at 1024 px, where batches bring little; encoding 15 ms times
the square root of how many go together, decoding 10 and 40 ms. The clock goes on for one call at a time, so nothing is
overlapped: a real GPU would do a little better.

Against it, on the same clock: one picture at a time, and static batches of up to 8 of equal size and steps, which go
through everything together. Arrivals are Poisson at a share of what one at a time makes; goodput counts pictures done
within five times what they take alone.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from rich.console import Console

from benchmarks.benchmark import Benchmark
from benchmarks.report import Report, Target
from deployments.contract.events import LAST, Event
from deployments.contract.job import GenerationJob, Output
from deployments.engine.backend import JobError
from deployments.engine.cost_model import StepCost
from deployments.engine.loop import Engine
from serve_app.load.arrivals import schedule

COST: Final = StepCost(fixed=0.020, per_token=4e-6, per_square=5.1e-9)
_DECODE_S: Final = {512: 0.010, 768: 0.022, 1024: 0.040}
_PIXELS_OF_TOKEN: Final = 16
_WITHIN: Final = 5.0
_SOME: Final = 0.05
"""Goodput below this, as a share of what one at a time makes, is nothing to compare with."""
_RUNNING, _BATCH = 64, 8
MIXES: Final[Mapping[str, Sequence[int]]] = {"512 px": (512,), "512 to 1024 px": (512, 768, 1024), "1024 px": (1024,)}


@dataclass(frozen=True, slots=True)
class Plan:
    pictures: int = 600
    """Of a mix and a load."""
    loads: tuple[float, ...] = (0.8, 1.0, 1.3, 3.0)
    """Times what one at a time makes."""
    steps: tuple[int, ...] = (4, 8, 16, 28)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Picture:
    job: GenerationJob
    done_steps: int = 0
    key: None = None

    @property
    def tokens(self) -> int:
        return (self.job.width // _PIXELS_OF_TOKEN) * (self.job.height // _PIXELS_OF_TOKEN)

    @property
    def total_steps(self) -> int:
        return self.job.steps

    @property
    def steps_alike(self) -> int:
        return self.total_steps - self.done_steps


@dataclass
class AssumedGpu:
    """Implements engine.backend.Backend[GenerationJob, Picture]: nothing but time goes by."""

    clock: Clock
    setup: Mapping[str, str] = field(default_factory=dict)

    def counts(self) -> Mapping[str, float]:
        return {}

    def fetch(self, job: GenerationJob) -> GenerationJob:
        return job

    def encode(self, fetched: Sequence[GenerationJob]) -> list[Picture | JobError]:
        self.clock.now += 0.015 * math.sqrt(len(fetched))
        return [Picture(job) for job in fetched]

    def step(self, states: Sequence[Picture]) -> None:
        tokens = [state.tokens for state in states]
        self.clock.now += COST.seconds(sum(tokens), sum(each * each for each in tokens))
        for state in states:
            state.done_steps += 1

    def finish(self, state: Picture) -> Callable[[], Output]:
        self.clock.now += _DECODE_S[state.job.width]
        return partial(Output, state.job.id, "image/png", state.job.width, state.job.height, 1)

    def preview(self, state: Picture) -> None:
        """None are wanted."""


def measure(plan: Plan, console: Console) -> Report:
    cells = [cell for name, sides in MIXES.items() for cell in _cells(plan, name, _jobs(plan, sides))]
    kept = [cell for cell in cells if cell["static"]["good"] >= _SOME]
    return Report(figures={"simulated": True, "cells": cells}, targets=[_target(cell) for cell in kept])


def _cells(plan: Plan, mix: str, jobs: Sequence[GenerationJob]) -> Iterator[dict[str, Any]]:
    """One for each load."""
    solo = np.array([_one_after_the_other([job], [0.0], 1)[0] for job in jobs])
    capacity = len(jobs) / float(solo.sum())
    for load in plan.loads:
        moments = _arrivals(len(jobs), load * capacity)
        sides = {
            "one": _one_after_the_other(jobs, moments, 1),
            "static": _one_after_the_other(jobs, moments, _BATCH),
            "engine": _engine(jobs, moments),
        }
        figures = {side: _figures(np.array(moments), np.array(done), solo) for side, done in sides.items()}
        yield {"mix": mix, "load": load, **figures}


def _target(cell: Mapping[str, Any]) -> Target:
    ratio = cell["engine"]["good"] / cell["static"]["good"]
    name = f"simulated GPU, {cell['mix']}, load {cell['load']}: goodput, engine / static"
    return Target(name, ratio, 0.97, "x", True)


def _jobs(plan: Plan, sides: Sequence[int]) -> list[GenerationJob]:
    chance = random.Random(0)
    return [_job(number, chance.choice(sides), chance.choice(plan.steps)) for number in range(plan.pictures)]


def _job(number: int, side: int, steps: int) -> GenerationJob:
    return GenerationJob(
        id=str(number),
        attempt=1,
        prompt="",
        width=side,
        height=side,
        steps=steps,
        seed=number,
        output_format="png",
        output_prefix="",
    )


def _arrivals(count: int, rate: float) -> list[float]:
    """Of so many requests, seconds."""
    duration, found = count / rate, list[float]()
    while len(found) < count:
        duration *= 1.2
        found = schedule("poisson", rate, duration)
    return found[:count]


def _one_after_the_other(jobs: Sequence[GenerationJob], moments: Sequence[float], at_once: int) -> list[float]:
    """When each is done if up to so many that wait and are alike go through together, in order of arrival."""
    clock, done = Clock(), [0.0] * len(jobs)
    gpu, waiting, coming = AssumedGpu(clock), deque[int](), deque(range(len(jobs)))
    while waiting or coming:
        if not waiting:
            clock.now = max(clock.now, moments[coming[0]])
        while coming and moments[coming[0]] <= clock.now:
            waiting.append(coming.popleft())
        batch = [number for number in waiting if _alike(jobs[number], jobs[waiting[0]])][:at_once]
        states = [Picture(jobs[number]) for number in batch]
        gpu.encode([state.job for state in states])
        while states[0].done_steps < states[0].total_steps:
            gpu.step(states)
        for number, state in zip(batch, states, strict=True):
            gpu.finish(state)
            done[number] = clock.now
            waiting.remove(number)
    return done


def _alike(one: GenerationJob, other: GenerationJob) -> bool:
    return (one.width, one.steps) == (other.width, other.steps)


def _engine(jobs: Sequence[GenerationJob], moments: Sequence[float]) -> list[float]:
    """When each is done by the service's engine."""
    clock, done = Clock(), [0.0] * len(jobs)
    engine = Engine(AssumedGpu(clock), max_running=_RUNNING, max_batch=_BATCH, clock=clock)

    def hear(number: int, event: Event) -> None:
        if isinstance(event, LAST):
            done[number] = clock.now

    coming = deque(range(len(jobs)))
    while coming or engine.waiting or engine.running:
        while coming and moments[coming[0]] <= clock.now:
            number = coming.popleft()
            engine.submit(jobs[number], lambda event, number=number: hear(number, event))
        if not engine.step_once() and coming:
            clock.now = max(clock.now, moments[coming[0]])
    return done


def _figures(moments: np.ndarray, done: np.ndarray, solo: np.ndarray) -> dict[str, float]:
    """Pictures per second and goodput, as shares of what one at a time makes, and the 99th percentile, seconds."""
    waits = done - moments
    span = float(done.max() - moments[0])
    return {
        "rate": round(float(solo.sum()) / span, 3),
        "good": round(float(solo.sum()) / span * float((waits <= _WITHIN * solo).mean()), 3),
        "p99_s": round(float(np.quantile(waits, 0.99)), 3),
    }


BENCHMARK = Benchmark(
    "simulated-gpu",
    "what the engine's policy would do with the costs assumed of a GPU",
    Plan(),
    Plan(pictures=20, loads=(1.0,)),
    measure,
)
