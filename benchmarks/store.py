"""What a full task store costs: every call a service makes, with a million tasks finished and many waiting, against
the same without a task.

Three servers, set up as the service sets up the embedded one, are up at once: one is filled, two are empty. They take
turns, in an order that changes, through the lives of some tasks. What differs between the two empty ones is the noise
of the measurement. A goal is for the CPU time of the server, from a call's first byte to its answer's last: what
clients wait is mostly their own time, and is told, too.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.progress import Progress

from benchmarks.benchmark import Benchmark
from benchmarks.interval import Interval
from benchmarks.report import Report, Target
from benchmarks.store_operations import Cost, Turn, Wrong
from benchmarks.store_side import Memory, Side, side

T = TypeVar("T")
LIMIT: Final = 1.5
_FILLED, _EMPTY, _CONTROL = "filled", "empty", "empty again"


@dataclass(frozen=True, slots=True)
class Plan:
    finished: int
    waiting: int
    lanes: int
    projects: int
    calls: int
    """Tasks that go through a store in a turn, each of another project."""
    rounds: int
    """That count, after one that does not. In each, every store has a turn."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one operation, a cost a round."""

    filled: Sequence[Cost]
    empty: Sequence[Cost]
    control: Sequence[Cost]

    def ratio(self, part: Callable[[Cost], float]) -> Interval:
        """Filled to empty."""
        return Interval.of_ratio([part(each) for each in self.filled], [part(each) for each in self.empty])

    def noise(self, part: Callable[[Cost], float]) -> Interval:
        """Empty to empty."""
        return Interval.of_ratio([part(each) for each in self.control], [part(each) for each in self.empty])

    def as_json(self) -> dict[str, Any]:
        parts: dict[str, Callable[[Cost], float]] = {
            "cpu_us": lambda cost: cost.cpu_us,
            "inside_us": lambda cost: cost.inside_us,
            "client_us": lambda cost: cost.client_us,
        }
        return {
            name: {
                _FILLED: Interval.of_median([part(each) for each in self.filled]).as_json(),
                _EMPTY: Interval.of_median([part(each) for each in self.empty]).as_json(),
                "ratio": self.ratio(part).as_json(),
                "noise": self.noise(part).as_json(),
            }
            for name, part in parts.items()
        }


def measure(plan: Plan, console: Console) -> Report:
    try:
        memory, costs = asyncio.run(_run(plan, console))
    except Wrong as problem:
        return Report({}, faults=[str(problem)])
    return report(memory, costs)


def report(memory: Memory, costs: dict[str, Measured]) -> Report:
    """`costs` by operation."""
    return Report(
        figures={
            "bytes_per_task": {name: round(value) for name, value in asdict(memory).items()},
            "operations": {name: each.as_json() for name, each in costs.items()},
        },
        targets=[
            Target(f"{name}, a full store against an empty one", each.ratio(lambda cost: cost.cpu_us), LIMIT, "x")
            for name, each in costs.items()
        ],
    )


async def _run(plan: Plan, console: Console) -> tuple[Memory, dict[str, Measured]]:
    lanes = [f"lane-{n}" for n in range(plan.lanes)]
    projects = [f"project-{n}" for n in range(plan.projects)]
    chosen = random.Random(0).sample(projects, plan.calls)
    with tempfile.TemporaryDirectory(prefix="gen-store-") as folder:
        async with AsyncExitStack() as stack:
            sides = [
                await stack.enter_async_context(side(name, Path(folder, name.replace(" ", "-")), lanes, projects))
                for name in (_EMPTY, _CONTROL, _FILLED)
            ]
            memory = await _fill(sides, plan, console)
            return memory, await _turns(sides, plan.rounds, lanes[0], chosen, console)


async def _fill(sides: Sequence[Side], plan: Plan, console: Console) -> Memory:
    """Of the last one's tasks; the others get nothing."""
    *empty, filled = sides
    for each in empty:
        await each.fill(0, 0, lambda _: None)
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("filling", total=plan.finished + plan.waiting)
        memory = await filled.fill(plan.finished, plan.waiting, lambda n: progress.advance(bar, n))
    console.print("waiting until the servers are quiet")
    for each in sides:
        await each.settle()
    return memory


async def _turns(
    sides: Sequence[Side], rounds: int, lane: str, chosen: Sequence[str], console: Console
) -> dict[str, Measured]:
    costs: dict[str, dict[str, list[Cost]]] = {}
    for n in range(rounds + 1):
        for each in order(sides, n):
            turn = Turn(each, lane, chosen)
            await turn.take()
            if n:
                for name, cost in turn.costs.items():
                    costs.setdefault(name, {}).setdefault(each.name, []).append(cost)
        console.print(f"round {n} of {rounds}" if n else "warmed up")
    return {name: Measured(each[_FILLED], each[_EMPTY], each[_CONTROL]) for name, each in costs.items()}


def order(sides: Sequence[T], n: int) -> list[T]:
    """Of round n: every side comes first, second and last in turn."""
    first = n % len(sides)
    return [*sides[first:], *sides[:first]]


BENCHMARK = Benchmark(
    name="store",
    what="What each call of the task store costs with a million tasks in it, against an empty one.",
    plan=Plan(finished=1_000_000, waiting=100_000, lanes=4, projects=5_000, calls=200, rounds=9),
    smoke=Plan(finished=2_000, waiting=200, lanes=2, projects=50, calls=16, rounds=1),
    measure=measure,
)
