"""From scores to a verdict: what is refused at which tolerance.

Every category has thresholds by safety tolerance, from 0 (strictest); levels beyond the last have the last. A score at
or above its threshold is refused. A ceiling holds a category to a level whatever tolerance was asked for. A category
that is never allowed has one threshold, a low one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from deployments.contract.moderation import Scores

Ceilings: TypeAlias = Mapping[str, int]
"""By category, the highest tolerance that counts."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What one task may show."""

    level: int
    ceilings: Ceilings = field(default_factory=dict)

    def of(self, category: str) -> int:
        return min(self.level, self.ceilings.get(category, self.level))


@dataclass(frozen=True, slots=True)
class Thresholds:
    by_category: Mapping[str, tuple[float, ...]]

    def refused(self, scores: Scores, tolerance: Tolerance) -> list[str]:
        """The categories that are too much, the surest first. A category without thresholds is never too much."""
        # Not `>=`: a score that is no number must not pass.
        over = [name for name, score in scores.items() if not score < self._limit(name, tolerance.of(name))]
        return sorted(over, key=lambda name: (-scores[name], name))

    def _limit(self, category: str, level: int) -> float:
        limits = self.by_category.get(category)
        return float("inf") if not limits else limits[min(level, len(limits) - 1)]


def lowest(*ceilings: Ceilings) -> dict[str, int]:
    """Of several ceilings for a category, the lowest counts."""
    names = {name for each in ceilings for name in each}
    return {name: min(each[name] for each in ceilings if name in each) for name in sorted(names)}
