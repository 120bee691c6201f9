"""How soon an idle service begins to work on a task: `python -m benchmarks.handoff`.

Tasks of one small step go in one at a time, each after the last has ended and a pause. Measured, in milliseconds: from
the moment the client has the submission's answer (its own clock) to the moment the dispatcher hears that the model has
admitted the task (`start_time` of the result). Both are the clock of one machine, so the difference is meaningful; it
is rounded to a millisecond, and it is below zero when work began before the answer had reached the client. On its way
lie the wake-up by Redis, the lease, the call of the model, its encoding of the prompt where that comes before
admission, and its first event. It says nothing about waits under load: `gen-serve bench` does.
"""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from benchmarks import machine
from benchmarks.report import Report, Target
from benchmarks.service import ENDPOINT, UNLIMITED, Service
from serve_app.load.spread import Spread

BODY = {"prompt": "a small red star", "width": 64, "height": 64, "steps": 1, "seed": 1}
PAUSE_S = 0.05
WARM_UP = 5


def measure(service: Service, n: int, console: Console) -> Report:
    facts = machine.facts()
    handed_over: list[float] = []
    submitted: list[float] = []
    with service.client() as client:
        for number in track(range(WARM_UP + n), "handing over", console=console):
            time.sleep(PAUSE_S)
            sent = time.time()
            task_id = client.submit(ENDPOINT, BODY)["id"]
            answered = time.time()
            time.sleep(PAUSE_S)  # a poll at once would compete with what is measured
            result = client.wait(task_id)
            if number >= WARM_UP:
                submitted.append(1000 * (answered - sent))
                handed_over.append(1000 * (result.facts["start_time"] - answered))
    spread, submission = Spread.of(handed_over), Spread.of(submitted)
    assert spread is not None
    assert submission is not None
    return Report(
        name="handoff",
        machine=facts,
        settings={"tasks": n, "body": BODY, "pause_s": PAUSE_S},
        figures={"handoff_ms": spread.as_json(), "submission_ms": submission.as_json()},
        targets=[
            Target("hand-off, p50", spread.p50, 10, "ms"),
            Target("hand-off, p99", spread.p99, 30, "ms"),
        ],
    )


def main(n: Annotated[int, typer.Option("-n", min=1, help="Tasks that count.")] = 200) -> None:
    """Time from a submission's answer to the start of work on an idle service."""
    console = Console()
    console.print("starting a service")
    with Service(UNLIMITED) as service:
        report = measure(service, n, console)
    sys.exit(report.finish(console))


if __name__ == "__main__":
    typer.run(main)
