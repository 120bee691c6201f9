"""What the service adds to the pipeline it runs: `python -m benchmarks.overhead`.

Pictures per second, end to end, 512 x 512 in 16 steps as JPEG:

* through the service: clients submit over HTTP, eight at a time, and wait for the result; the picture lies in the
  object store then
* bare: the stock pipeline of the same checkpoint in one process, picture after picture, JPEGs written to a folder

Both with as many threads and the same precision, in alternating rounds, while the other one is idle. A round ends with
its last picture, so the service pays for filling and emptying its batch. The ratio is the median service round over
the median bare round. The service steps several pictures together and finishes one while it steps others, which a
plain loop does not; where that gains something the ratio shows it, too, and may lie above one. It says what a user
gets, not what the layers between cost in themselves.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from benchmarks import machine
from benchmarks.bare_pipeline import BarePipeline
from benchmarks.report import Report, Target
from benchmarks.service import CONFIG, ENDPOINT, MODEL, UNLIMITED, Service
from serve_app.config import settings

ROUNDS = 3
PICTURES = 24
CONCURRENCY = 8
SIZE, STEPS = 512, 16


def measure(service: Service, rounds: int, pictures: int, console: Console) -> Report:
    facts = machine.facts()
    model = settings.load(CONFIG).models[MODEL]
    seeds = count(1)

    def requests(n: int, steps: int = STEPS) -> list[dict[str, Any]]:
        body = {"prompt": "a small red star on a dark blue background", "width": SIZE, "height": SIZE}
        return [body | {"steps": steps, "output_format": "jpeg", "seed": next(seeds)} for _ in range(n)]

    served: list[float] = []
    bare: list[float] = []
    checkpoint = model.checkpoint or "bundled/flux3"
    with BarePipeline(checkpoint, model.threads) as pipeline, Progress(console=console) as bars:
        bar = bars.add_task("measuring", total=2 * rounds)
        pipeline.seconds_for(requests(2, steps=2))
        _seconds_through(service, requests(2 * CONCURRENCY, steps=2))
        for _ in range(rounds):
            served.append(pictures / _seconds_through(service, requests(pictures)))
            bars.advance(bar)
            bare.append(pictures / pipeline.seconds_for(requests(pictures)))
            bars.advance(bar)
    return Report(
        name="overhead",
        machine=facts,
        settings={
            "rounds": rounds,
            "pictures_per_round": pictures,
            "concurrency": CONCURRENCY,
            "size": SIZE,
            "steps": STEPS,
            "format": "jpeg",
        },
        figures={
            "service_pictures_per_s": [round(rate, 4) for rate in served],
            "bare_pictures_per_s": [round(rate, 4) for rate in bare],
        },
        targets=[
            Target("pictures per second, service / bare loop", median(served) / median(bare), 0.9, "x", at_least=True)
        ],
    )


def _seconds_through(service: Service, requests: list[dict[str, Any]]) -> float:
    def work(request: dict[str, Any]) -> None:
        with service.client() as client:
            client.wait(client.submit(ENDPOINT, request)["id"])

    began = time.perf_counter()
    with ThreadPoolExecutor(CONCURRENCY) as clients:
        list(clients.map(work, requests))  # raises for what is not Ready
    return time.perf_counter() - began


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each.")] = ROUNDS,
    pictures: Annotated[int, typer.Option(min=1, help="Pictures per round.")] = PICTURES,
) -> None:
    """Pictures per second: the service against the bare pipeline loop."""
    console = Console()
    console.print("starting a service")
    with Service(UNLIMITED) as service:
        report = measure(service, rounds, pictures, console)
    console.print(report.figures)
    sys.exit(report.finish(console))


if __name__ == "__main__":
    typer.run(main)
