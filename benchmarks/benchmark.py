"""What every benchmark is: a plan as published, the same in seconds, and a function that measures it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rich.console import Console

from benchmarks.report import Report

Plan = TypeVar("Plan")
"""A frozen dataclass of counts, sizes and seconds. It is written beside the figures."""


@dataclass(frozen=True, slots=True)
class Benchmark(Generic[Plan]):
    name: str
    """Of its results file, and of `python -m benchmarks run NAME`."""
    what: str
    """One sentence."""
    plan: Plan
    """As published. What is compared alternates, in five rounds or more, after one that does not count."""
    smoke: Plan
    """As little of the same as shows that every part of it works: seconds."""
    measure: Callable[[Plan, Console], Report]

    def run(self, console: Console, smoke: bool = False) -> tuple[Any, Report]:
        """The plan that was used, and what came of it."""
        plan = self.smoke if smoke else self.plan
        return plan, self.measure(plan, console)
