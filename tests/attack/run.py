"""One run: what failed before, then family after family, with a bystander beside all of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from attack import failures
from attack.attacks import Attack
from attack.bystander import Bystander, Delays, watching
from attack.failures import Failure
from attack.families import FAMILIES
from attack.stage import Stage, staged

MOST_TIMES_IDLE: Final = 3.0
"""The bystander's p99 under attack, at most, in times of its p99 before."""
_NICE: Final = 10
_SHOWN: Final = 5
"""Failures of a family that are told as they happen."""


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int = 1
    count: int = 10_000
    families: tuple[str, ...] = tuple(FAMILIES)
    idle_s: float = 10.0
    """How long the bystander is alone first."""
    corpus: Path = Path(".attack/failed.jsonl")
    only_corpus: bool = False


@dataclass(slots=True)
class Suffered:
    """What a family came to."""

    tried: int = 0
    failed: list[Failure] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    took_s: float = 0.0
    slowest_s: float = 0.0
    slowest: str = ""
    """The attack that took longest, and how long."""
    delays: Delays = field(default_factory=lambda: Delays.of([]))


@dataclass(frozen=True, slots=True)
class Report:
    plan: Plan
    idle: Delays
    families: dict[str, Suffered]

    @property
    def failed(self) -> Sequence[Failure]:
        return [failure for suffered in self.families.values() for failure in suffered.failed]

    @property
    def disturbed(self) -> Sequence[str]:
        """Families that made the bystander wait too long, or had it refused."""
        most = MOST_TIMES_IDLE * self.idle.p99
        return [name for name, each in self.families.items() if each.delays.p99 > most or each.delays.troubles]


def run(
    plan: Plan, url: str, operator: str, folder: Path, repository: Path, say: Callable[[str], None], *, proxied: bool
) -> Report:
    """Attacks the service at `url`. `folder` is for what the run keeps for itself. Raises NotOurs."""
    return asyncio.run(_run(plan, url, operator, folder, repository, say, proxied))


async def _run(
    plan: Plan, url: str, operator: str, folder: Path, repository: Path, say: Callable[[str], None], proxied: bool
) -> Report:
    async with staged(url, operator, proxied=proxied) as stage:
        with watching(url, stage.bystander.keys["developer"], folder) as bystander, _yielding():
            alone = time.monotonic()
            await asyncio.sleep(plan.idle_s)
            idle = bystander.delays(alone, time.monotonic())
            report = Report(plan, idle, {})
            known = failures.load(plan.corpus)
            for name in plan.families:
                say(f"{name}: begins")
                report.families[name] = await _family(name, plan, stage, bystander, repository, known, say)
    failures.save(plan.corpus, [*(each for each in known if each.family not in plan.families), *report.failed])
    return report


async def _family(
    name: str,
    plan: Plan,
    stage: Stage,
    bystander: Bystander,
    repository: Path,
    known: Sequence[Failure],
    say: Callable[[str], None],
) -> Suffered:
    family = FAMILIES[name]

    def made(of: str, seed: int, count: int) -> Sequence[Attack]:
        return FAMILIES[of].attacks(repository, seed, count)

    count = max(1, round(plan.count * family.share / sum(FAMILIES[each].share for each in plan.families)))
    before = list(failures.again([each for each in known if each.family == name], made))
    attacks: list[tuple[int, int, Attack]] = [(failure.seed, failure.count, attack) for failure, attack in before]
    if not plan.only_corpus:
        attacks += [(plan.seed, count, attack) for attack in made(name, plan.seed, count)]

    suffered = Suffered()
    began = time.monotonic()
    waiting = iter(attacks)

    async def work() -> None:
        for seed, of, attack in waiting:
            at = time.monotonic()
            outcome = await attack.run(stage)
            if (took := time.monotonic() - at) > suffered.slowest_s:
                suffered.slowest_s, suffered.slowest = took, attack.name
            suffered.tried += attack.tries
            suffered.statuses += outcome.statuses
            if outcome.wrong:
                failure = Failure.of(name, seed, of, attack, outcome)
                suffered.failed.append(failure)
                if len(suffered.failed) <= _SHOWN:
                    say(f"FAILED {failure.shown}")

    await asyncio.gather(*(work() for _ in range(family.parallel)))
    over = time.monotonic()
    suffered.took_s = over - began
    suffered.delays = bystander.delays(began, over)
    say(f"{name}: {suffered.tried} tried, {len(suffered.failed)} failed, in {suffered.took_s:.0f} s")
    return suffered


@contextmanager
def _yielding() -> Iterator[None]:
    """The attackers' own work comes after that of the service, which on one machine they would otherwise take from."""
    this_thread = 0
    before = os.getpriority(os.PRIO_PROCESS, this_thread)
    os.setpriority(os.PRIO_PROCESS, this_thread, before + _NICE)
    try:
        yield
    finally:
        with contextlib.suppress(PermissionError):  # only root may take it back
            os.setpriority(os.PRIO_PROCESS, this_thread, before)
