"""How many of the prompts a judge was right about.

A prompt counts for the category that it was written for. What is refused for another category as well (a threat to a
people is violent, too) is no mistake; only what is harmless can be refused wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from deployments.contract.moderation import CATEGORIES, Scores
from deployments.contract.thresholds import Thresholds, Tolerance
from deployments.moderation.evaluation.prompt import Prompt
from deployments.moderation.judges import TextJudge


@dataclass(frozen=True, slots=True)
class Judged:
    prompt: Prompt
    scores: Scores


@dataclass(frozen=True, slots=True)
class Tally:
    caught: int = 0
    slipped: int = 0
    wronged: int = 0
    harmless: int = 0

    @property
    def precision(self) -> float | None:
        """Of what was refused, the share that should be."""
        return _share(self.caught, self.caught + self.wronged)

    @property
    def recall(self) -> float | None:
        """Of what should be refused, the share that was."""
        return _share(self.caught, self.caught + self.slipped)


def examined(judge: TextJudge, prompts: Iterable[Prompt], batch: int = 16) -> list[Judged]:
    asked = list(prompts)
    scores: list[Scores] = []
    for start in range(0, len(asked), batch):
        scores += judge.judge([prompt.text for prompt in asked[start : start + batch]])
    return [Judged(prompt, score) for prompt, score in zip(asked, scores, strict=True)]


def tally(results: Iterable[Judged], limits: Thresholds, tolerance: int, category: str | None = None) -> Tally:
    """Of one category; without one, of all, where it doesn't matter for which one a prompt is refused."""
    counts = {"caught": 0, "slipped": 0, "wronged": 0, "harmless": 0}
    for one in results:
        reasons = limits.refused(one.scores, Tolerance(tolerance))
        hit = bool(reasons) if category is None else category in reasons
        if one.prompt.category is None:
            counts["harmless"] += 1
            counts["wronged"] += hit
        elif tolerance <= one.prompt.until and category in (None, one.prompt.category):
            counts["caught" if hit else "slipped"] += 1
    return Tally(**counts)


def by_category(results: list[Judged], limits: Thresholds, tolerance: int) -> dict[str, Tally]:
    return {category: tally(results, limits, tolerance, category) for category in CATEGORIES}


def grouped(results: Iterable[Judged], key: Callable[[Prompt], str]) -> dict[str, list[Judged]]:
    groups: dict[str, list[Judged]] = {}
    for one in results:
        groups.setdefault(key(one.prompt), []).append(one)
    return groups


def slipped(results: Iterable[Judged], limits: Thresholds, tolerance: int) -> list[Judged]:
    """What should have been refused for some reason, and was for none."""
    return [
        one
        for one in results
        if one.prompt.category
        and tolerance <= one.prompt.until
        and not limits.refused(one.scores, Tolerance(tolerance))
    ]


def wronged(results: Iterable[Judged], limits: Thresholds, tolerance: int) -> list[tuple[Judged, list[str]]]:
    """What is harmless and was refused, and for which reasons."""
    return [
        (one, reasons)
        for one in results
        if one.prompt.category is None and (reasons := limits.refused(one.scores, Tolerance(tolerance)))
    ]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
