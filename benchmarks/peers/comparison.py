"""This service beside what people would build instead: `python -m benchmarks run peers`.

Every side holds the same small bundled model and draws the same pictures: requests of the same prompts, seeds, sizes
and steps, rendered at the size that is asked for, in float32. In a round each side is started, measured and ended
before the next one starts, so that only one runs at a time and every figure spans several processes; the loop comes
first, since loads and limits are told in what it does, and the others' order turns with the rounds. `docs/peers.md`
says what is measured, and what it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from math import isfinite
from typing import Any

from rich.console import Console

from benchmarks.benchmark import Benchmark
from benchmarks.peers import same_work
from benchmarks.peers.measuring import MIXED, Measured, Solo, solo_of
from benchmarks.peers.measuring import measure as measure_side
from benchmarks.peers.plan import FULL, SMOKE, Plan
from benchmarks.peers.results import Round, Row, behind_first, rows
from benchmarks.peers.side import Side
from benchmarks.peers.sides import CeleryStack, LitServe, Loop, RayBatch, ThisService
from benchmarks.peers.table import draw, table
from benchmarks.report import Report, Target
from benchmarks.service import CONFIG, MODEL
from serve_app.config import settings

OWN = ThisService.name


def contenders(plan: Plan) -> list[Callable[[], Side]]:
    """All but the loop."""
    peer = (_checkpoint(), plan.threads, plan.max_batch)
    return [
        partial(CeleryStack, *peer),
        partial(RayBatch, *peer),
        partial(LitServe, *peer),
        ThisService,
    ]


def measure(plan: Plan, console: Console) -> Report:
    chosen = settings.load(CONFIG).models[MODEL]
    if chosen.max_batch != plan.max_batch or chosen.dtype != same_work.DTYPE:
        raise ValueError(f"{CONFIG} has another max_batch or dtype than the plan: {chosen.max_batch}, {chosen.dtype}")
    rounds: list[Round] = []
    faults: list[str] = []
    for number in range(plan.rounds):
        console.print(f"round {number + 1} of {plan.rounds}")
        made, found = _round(plan, turned(contenders(plan), number), console)
        rounds.append(made)
        faults += found
    figures = rows(rounds, plan)
    written = as_json(rounds, figures)
    console.print(table(figures, written["sides"], OWN, plan.rounds))
    return Report(written, targets(figures), faults, partial(draw, figures, written["sides"]))


def targets(figures: Sequence[Row]) -> list[Target]:
    """What a service is for, against the best of the others; and that it keeps what it accepted."""
    goals = []
    for row in figures:
        if row.name == f"pictures/s, {MIXED}" or row.name.startswith("goodput"):
            behind = row.behind(OWN)
            goals.append(
                Target(f"{row.name}, against the best other", 1 / behind if behind else None, 1, "x", at_least=True)
            )
        elif row.name.startswith("lost"):
            goals.append(Target(row.name, row.sides.get(OWN), 0, row.unit))
    return goals


def turned(sides: Sequence[Callable[[], Side]], number: int) -> list[Callable[[], Side]]:
    """Another one first in each round, so that none always follows the same other."""
    start = number % len(sides)
    return [*sides[start:], *sides[:start]]


def as_json(rounds: Sequence[Round], figures: Sequence[Row]) -> dict[str, Any]:
    """Where the service is behind comes first."""
    return {
        "sides": list(dict.fromkeys(name for one in rounds for name in one.sides)),
        "behind": [
            {"name": row.name, "times": round(factor, 3) if isfinite(factor) else None}
            for row, factor in behind_first(figures, OWN)
            if factor is not None and factor > 1
        ],
        "rows": [row.as_json() for row, _ in behind_first(figures, OWN)],
        "killed": [
            {side: {victim: asdict(what) for victim, what in made.killed.items()} for side, made in one.sides.items()}
            for one in rounds
        ],
    }


def _round(plan: Plan, others: Sequence[Callable[[], Side]], console: Console) -> tuple[Round, list[str]]:
    """Each side by itself. Also what must not have happened."""
    yardstick = Loop(_checkpoint(), plan.threads, plan.max_batch)
    loop = _measured(yardstick, plan, None, console)
    solo = solo_of(loop)
    sides = {yardstick.name: loop}
    faults = same_work.faults(yardstick, loop, loop, plan)
    for make in others:
        side = make()
        sides[side.name] = made = _measured(side, plan, solo, console)
        faults += same_work.faults(side, made, loop, plan)
    return Round(solo, sides), faults


def _measured(side: Side, plan: Plan, solo: Solo | None, console: Console) -> Measured:
    console.print(f"  {side.name}", highlight=False)
    return measure_side(side, plan, solo)


def _checkpoint() -> str:
    checkpoint = settings.load(CONFIG).models[MODEL].checkpoint
    if checkpoint is None:
        raise ValueError(f"{CONFIG} has no bundled checkpoint for {MODEL}")
    return checkpoint


BENCHMARK = Benchmark(
    "peers",
    "The service beside what people would build instead: Celery, Ray Serve with batching, LitServe, a plain loop.",
    FULL,
    SMOKE,
    measure,
)
