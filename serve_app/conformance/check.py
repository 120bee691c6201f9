"""One check is one sentence of the interface, and how to see whether it holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from serve_app.conformance.session import Session

DECIDED: Final = "Decided: "
"""How sections begin that settle what the interface leaves open."""

Run: TypeAlias = Callable[[Session], Awaitable[None]]
"""Returns where the sentence holds. Raises Broken where it does not, Skipped where that can't be seen."""
Need: TypeAlias = Literal["finetune", "receiver", "video"]


@dataclass(frozen=True, slots=True)
class Check:
    topic: str
    section: str
    sentence: str
    """Word for word; the cells of a table's row stand between colons."""
    run: Run
    credits: float = 0.0
    """What it may cost at most, roughly: the tasks that it starts, at the prices in `endpoints.py`."""
    needs: Need | None = None

    @property
    def decided(self) -> bool:
        """Whether the sentence settles what the interface itself leaves open."""
        return self.section.startswith(DECIDED)


class Topic:
    """A part of the interface that can be checked by itself, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks: list[Check] = []

    def holds(
        self, section: str, sentence: str, *, credits: float = 0.0, needs: Need | None = None
    ) -> Callable[[Run], Run]:
        """Makes the function below it the check of a sentence."""

        def add(run: Run) -> Run:
            self.checks.append(Check(self.name, section, sentence, run, credits, needs))
            return run

        return add


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "fails"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Outcome:
    check: Check
    verdict: Verdict
    reason: str = ""
    """What was expected, or why it was skipped."""
    sent: str = ""
    received: str = ""
