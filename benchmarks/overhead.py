"""What the service adds to the engine and the pipeline it runs.

Pictures per second, from the first request to the last file, the same pictures on three sides in turns, while the
other two are idle:

* `service`: clients submit over HTTP, so many at a time as the engine takes, and wait for the result
* `engine`: the service's step engine in a process of its own, which is given all of a round's requests at once
* `pipeline`: the stock diffusers pipeline of the same checkpoint, picture after picture

All render at the size that is asked for and in the same precision: the yardsticks say what they did, and pictures of
one seed must be pixel by pixel the same on all sides. The engine has as many threads as the profile gives the service;
the pipeline all cores, which serves it best, so that sums may be rounded otherwise. Services are filled and emptied in
every round, and that counts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import Progress

from benchmarks.bare_engine import bare_engine
from benchmarks.bare_pipeline import bare_pipeline
from benchmarks.bare_process import Done, Request
from benchmarks.benchmark import Benchmark
from benchmarks.interval import Interval
from benchmarks.report import Report, Target
from benchmarks.service import CONFIG, ENDPOINT, MODEL, UNLIMITED, Service
from benchmarks.work import ROUNDED, Work, differences, unlike
from serve_app.config import settings


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 7
    """That count; one more warms up."""
    pictures: int = 48
    """Of a round and a side."""
    side: int = 256
    """Pixels, rendered and asked for."""
    steps: int = 8
    clients: int = 16


Side: TypeAlias = Callable[[Sequence[Request]], Done]
"""Makes all pictures."""


def measure(plan: Plan, console: Console) -> Report:
    model = settings.load(CONFIG).models[MODEL]
    checkpoint, cores = model.checkpoint or "bundled/flux3", os.cpu_count() or 1
    threads = model.threads or cores
    alike = {"RENDER_SIDE": plan.side, "THREADS": threads, "DTYPE": "float32", "DEVICE": "cpu"}
    overrides = {f"GEN_MODELS__{MODEL}__{name}".upper(): str(value) for name, value in alike.items()}
    with ExitStack() as stack:
        console.print("starting a service, an engine and a pipeline")
        service = stack.enter_context(Service(UNLIMITED | overrides))
        engine = stack.enter_context(bare_engine(checkpoint, threads))
        pipeline = stack.enter_context(bare_pipeline(checkpoint, cores))
        wanted = {
            name: Work((plan.side, plan.side), plan.steps, "float32", count)
            for name, count in (("engine", threads), ("pipeline", cores))
        }
        sides: dict[str, Side] = {
            "service": lambda requests: _served(service, requests, plan.clients),
            "engine": engine.make,
            "pipeline": pipeline.make,
        }
        faults = _faults(service, engine.make, pipeline.make, plan, wanted)
        rates: dict[str, list[float]] = {name: [] for name in sides}
        seeds = count(1000)
        with Progress(console=console) as bars:
            bar = bars.add_task("measuring", total=len(sides) * (plan.rounds + 1))
            for number in range(plan.rounds + 1):
                requests = [_request(plan, next(seeds)) for _ in range(plan.pictures if number else plan.clients)]
                names = list(sides)
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    done = sides[name](requests)
                    faults += _other_work(name, done, wanted.get(name))
                    if number:
                        rates[name].append(len(requests) / done.seconds)
                    bars.advance(bar)
    against_engine = Interval.of_ratio(rates["service"], rates["engine"])
    against_pipeline = Interval.of_ratio(rates["service"], rates["pipeline"])
    return Report(
        figures={
            "pictures_per_s": {name: Interval.of_median(values).as_json() for name, values in rates.items()},
            "rounds": {name: [round(value, 3) for value in values] for name, values in rates.items()},
        },
        targets=[
            Target("pictures per second, service / bare engine", against_engine, 0.95, "x", at_least=True),
            Target(
                "pictures per second, service / stock pipeline in a loop", against_pipeline, 0.95, "x", at_least=True
            ),
        ],
        faults=list(dict.fromkeys(faults)),
    )


def _request(plan: Plan, seed: int) -> Request:
    body: dict[str, Any] = {"prompt": "a small red star on a dark blue background", "seed": seed, "steps": plan.steps}
    return body | {"width": plan.side, "height": plan.side, "output_format": "jpeg"}


def _served(service: Service, requests: Sequence[Request], clients: int) -> Done:
    """Raises for what is not Ready. The service doesn't say what it did; `_faults` looks at its pictures."""

    def work(request: Request) -> None:
        with service.client() as client:
            client.wait(client.submit(ENDPOINT, request)["id"])

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(work, requests))
    return Done(time.perf_counter() - began, [], [])


def _faults(service: Service, engine: Side, pipeline: Side, plan: Plan, wanted: Mapping[str, Work]) -> list[str]:
    """Of pictures of the same seeds, each drawn alone, on all sides; and of what the yardsticks say that they did."""
    requests = [_request(plan, seed) for seed in (1, 2, 3)]
    with service.client() as client:
        ours = [client.wait(client.submit(ENDPOINT, request)["id"]).content() for request in requests]
    faults = []
    for name, make in (("engine", engine), ("pipeline", pipeline)):
        made = [make([request]) for request in requests]
        levels = ROUNDED if wanted["engine"].threads != wanted[name].threads else 0
        files = [one.files[0].read_bytes() for one in made]
        faults += [f"service and {name}: {what}" for what in unlike(ours, files, levels)]
        faults += [fault for one in made for fault in _other_work(name, one, wanted[name])]
    return faults


def _other_work(name: str, done: Done, wanted: Work | None) -> list[str]:
    """Of a side that says what it did."""
    if wanted is None:
        return []
    return differences(name, done.work, "what was asked for", [wanted] * len(done.work))


BENCHMARK = Benchmark(
    "overhead",
    "pictures per second: the service, its engine alone, the stock pipeline in a loop",
    Plan(),
    Plan(rounds=1, pictures=2, side=64, steps=2, clients=2),
    measure,
)
