"""The rounds of the packing benchmark: what is measured of its sides, and how often."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from gen_serve_bench.workload import schedule

from benchmarks.work import unlike
from deployments.contract import counts
from deployments.contract.job import PictureFormat

if TYPE_CHECKING:  # torch and diffusers take seconds to import
    from benchmarks.packing_sides import Mix, Side, Stepping

COMPARED: Final = ("one", "static", "engine")
_WITHIN: Final = 5.0
"""Times its solo latency a picture may take to count."""
_FLIPS: Final = 1
"""Levels of 255 that pictures may be apart, as they round."""
ANY: Final = 255
"""Levels that say nothing: the same pictures are there, and of the same size."""


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 5
    """That count; one more warms up."""
    pictures: int = 72
    """Of a round and a side, saturated: so many that static batches find company of their shape."""
    warm_up: int = 24
    """Of the round that does not count, in which pictures are compared."""
    kept: int = 24
    """Of a round and a side, where what is kept is measured."""
    alone: int = 9
    """Of a round and a side, with one job at a time."""
    loads: tuple[float, ...] = (0.5, 1.0, 1.3)
    """Times what one at a time makes."""
    arrivals: int = 40
    """Of a round and a side, under load."""

    def of_round(self, number: int) -> int:
        """Pictures of a side, saturated."""
        return self.pictures if number else self.warm_up

    def total(self, halves: bool) -> int:
        """Pictures of all parts, about; in bfloat16, too, with `halves`."""
        saturated = 2 * len(COMPARED) * (1 + halves) + 1  # of two mixes, and with adapters
        pairs = 2 * (self.rounds + 1) * (self.kept + self.alone)
        loaded = len(self.loads) * len(COMPARED) * self.rounds * self.arrivals
        return saturated * (self.rounds * self.pictures + self.warm_up) + pairs + loaded


class Rounds:
    """The parts of the benchmark. Sides take turns in going first."""

    def __init__(
        self,
        plan: Plan,
        sides: Mapping[str, Side],
        engines: Mapping[str, Stepping],
        made: Callable[[str, int], None],
    ) -> None:
        """`made` is told after each run what is measured, and of how many more pictures."""
        self._plan = plan
        self._sides = sides
        self._engines = engines
        self._made = made
        self._seeds = count()
        self.faults: list[str] = []
        self.shares: list[float] = []
        """Of the time of saturated rounds that the engine spent inside steps."""

    def saturated(self, mixes: Mapping[str, Mix], levels: int = _FLIPS) -> dict[str, list[float]]:
        """Pictures per second by side, round by round. Jobs of a round differ by what their mixes do alone; pictures of
        sides that have the same may differ by so many `levels`. The round that does not count shows that, by PNG: a
        JPEG makes several levels of one."""
        rates: dict[str, list[float]] = defaultdict(list)
        alike = [name for name, mix in mixes.items() if mix == mixes["engine"]]
        for number in range(self._plan.rounds + 1):
            seed, pictures = next(self._seeds), self._plan.of_round(number)
            form: PictureFormat = "jpeg" if number else "png"
            for name in _turned(list(mixes), number):
                jobs, before = mixes[name].jobs(pictures, seed, form), self._spent("engine")
                seconds = max(self._sides[name].run(jobs, [0.0] * pictures))
                if number:
                    rates[name].append(pictures / seconds)
                    if name == "engine":
                        self.shares.append((self._spent("engine") - before) / seconds)
                self._made("saturated", pictures)
            self._compare(mixes["engine"].jobs(pictures, seed, form), alike, ANY if number else levels)
        return rates

    def alone(self, mix: Mix) -> dict[str, list[float]]:
        """Pictures per second, round by round, of the engine that gets one job at a time, and of the stock pipeline."""
        rates: dict[str, list[float]] = defaultdict(list)
        names = ("engine", "stock")
        for number in range(self._plan.rounds + 1):
            jobs = mix.jobs(self._plan.alone, next(self._seeds))
            for name in _turned(names, number):
                seconds = sum(self._sides[name].run([job], [0.0])[0] for job in jobs)
                if number:
                    rates[name].append(len(jobs) / seconds)
                self._made("one job at a time", len(jobs))
            self._compare(jobs, names, 0)
        return rates

    def _compare(self, jobs: Sequence[Any], names: Sequence[str], levels: int) -> None:
        """Notes pictures that are further apart than that between sides."""
        files = {name: [self._sides[name].file(job) for job in jobs] for name in names}
        first, *others = names
        for name in others:
            self.faults += [f"{first} and {name}: {what}" for what in unlike(files[first], files[name], levels)]

    def under_load(self, mix: Mix, capacity: float) -> dict[float, dict[str, list[float]]]:
        """Pictures done in time, by load and side, round by round."""
        from benchmarks.packing_sides import alone

        solo = alone(self._sides["one"], mix.jobs(200, 0))
        return {load: self._under_load(mix, load, load * capacity, solo) for load in self._plan.loads}

    def _under_load(self, mix: Mix, load: float, per_s: float, solo: Mapping[Any, float]) -> dict[str, list[float]]:
        from benchmarks.packing_sides import shape_of

        good: dict[str, list[float]] = defaultdict(list)
        for number in range(self._plan.rounds):
            seed = next(self._seeds)
            moments = schedule("poisson", per_s, self._plan.arrivals / per_s, seed)
            jobs = mix.jobs(len(moments), seed)
            for name in _turned(COMPARED, number):
                done = self._sides[name].run(jobs, moments)
                in_time = [
                    ended - came <= _WITHIN * solo[shape_of(job)]
                    for job, came, ended in zip(jobs, moments, done, strict=True)
                ]
                good[name].append(sum(in_time))
                self._made(f"load {load}", self._plan.arrivals)
        return good

    def repeated(self, mix: Mix) -> dict[str, Any]:
        """Milliseconds of encoding a picture, round by round, by whether anything is kept; and how much of what was
        looked up was."""
        spent: dict[str, list[float]] = {"engine": [], "keeping": []}
        found: Counter[str] = Counter()
        for number in range(self._plan.rounds + 1):
            jobs = mix.jobs(self._plan.kept, next(self._seeds))
            for name in _turned(list(spent), number):
                engine = self._engines[name].engine
                before = engine.counts
                self._engines[name].run(jobs, [0.0] * len(jobs))
                grown = {key: value - before.get(key, 0) for key, value in engine.counts.items()}
                if number:  # in the first round all of it is new
                    spent[name].append(1000 * grown[counts.seconds("encode")] / len(jobs))
                    if name == "keeping":
                        found.update({key: int(value) for key, value in grown.items()})
                self._made("what is kept", len(jobs))
        hits = {cache: found[counts.hits(cache)] for cache in ("prompts", "references")}
        looked_up = {cache: hits[cache] + found[counts.misses(cache)] for cache in hits}
        return {
            "encode_ms": {"not": spent["engine"], "kept": spent["keeping"]},
            "hit_rate": {cache: round(hits[cache] / max(looked_up[cache], 1), 4) for cache in hits},
        }

    def _spent(self, name: str) -> float:
        return self._engines[name].engine.counts.get(counts.seconds("steps"), 0.0)


def _turned(names: Sequence[str], number: int) -> list[str]:
    turn = number % len(names)
    return [*names[turn:], *names[:turn]]
