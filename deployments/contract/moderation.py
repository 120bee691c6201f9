"""Moderation specs: categories, classifiers, thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from deployments.contract.model import Precision
from deployments.contract.objects import OptionsHere
from deployments.proxies import ENVIRONMENT
from deployments.telemetry.logs import USUAL_LOGS, LogSpec

CATEGORIES: Final = ("sexual content", "violence", "hate", "self-harm", "illegal acts", "child safety")
"""As clients see them among the moderation reasons."""

Scores: TypeAlias = Mapping[str, float]
"""By category, how surely something belongs to it, 0 to 1. A category that is not there counts as 0."""


def highest(all_scores: Iterable[Scores]) -> dict[str, float]:
    """Of several scores for a category, the highest counts."""
    result: dict[str, float] = {}
    for scores in all_scores:
        for name, score in scores.items():
            result[name] = max(score, result.get(name, 0.0))
    return result


TEXT_CLASSIFIERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "lexicon": "deployments.moderation.blocklist:Lexicon",
        "guard": "deployments.moderation.guard:Guard",
        "text-classifier": "deployments.moderation.classifiers:TextClassifier",
    }
)
IMAGE_CLASSIFIERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "skin": "deployments.moderation.known_images:SkinClassifier",
        "known-images": "deployments.moderation.known_images:KnownImages",
        "image-classifier": "deployments.moderation.classifiers:ImageClassifier",
    }
)
"""By the names that configurations have for them, where classifiers are. Adding one is a file and a line here."""
WEIGHTLESS: Final = frozenset({"lexicon", "skin", "known-images"})
"""Those that need no network: dispatchers have them in their own process."""


@dataclass(frozen=True, slots=True)
class ClassifierSpec:
    """`backend` is one of the names above. `checkpoint` is a hub id, a folder or a file, whatever the backend reads.

    `labels` are the categories that the checkpoint's own labels stand for; those of its labels that are not there count
    for nothing.
    """

    backend: str
    checkpoint: str | None = None
    revision: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    device: str = "auto"
    dtype: Precision = "auto"


@dataclass(frozen=True, slots=True)
class ModeratorSpec:
    """The highest score of several classifiers counts. At most `max_batch` items go together."""

    text: tuple[ClassifierSpec, ...]
    images: tuple[ClassifierSpec, ...]
    objects_url: str
    objects_options: dict[str, Any] = field(default_factory=dict)
    objects_secrets: OptionsHere | None = None
    max_batch: int = 16
    threads: int | None = None
    logs: LogSpec = USUAL_LOGS
    proxy: str = ENVIRONMENT
    """The setting `network.proxy`, for `proxies.apply_proxy`."""

    def split(self) -> tuple[ModeratorSpec, ModeratorSpec]:
        """The classifiers for the dispatchers' own process, and those for a deployment."""

        def part(weightless: bool) -> ModeratorSpec:
            text, images = (
                tuple(each for each in specs if (each.backend in WEIGHTLESS) == weightless)
                for specs in (self.text, self.images)
            )
            return replace(self, text=text, images=images)

        return part(weightless=True), part(weightless=False)


Ceilings: TypeAlias = Mapping[str, int]
"""By category, the highest tolerance that counts."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What one task may show."""

    level: int
    ceilings: Ceilings = field(default_factory=dict)

    def level_for(self, category: str) -> int:
        return min(self.level, self.ceilings.get(category, self.level))


@dataclass(frozen=True, slots=True)
class Thresholds:
    by_category: Mapping[str, tuple[float, ...]]

    def categories_over(self, scores: Scores, tolerance: Tolerance) -> list[str]:
        """The categories that are too much, the surest first. A category without thresholds is never too much."""
        # Not `>=`: a score that is no number must not pass.
        over = [name for name, score in scores.items() if not score < self._limit(name, tolerance.level_for(name))]
        return sorted(over, key=lambda name: (-scores[name], name))

    def _limit(self, category: str, level: int) -> float:
        limits = self.by_category.get(category)
        return float("inf") if not limits else limits[min(level, len(limits) - 1)]


def lowest(*ceilings: Ceilings) -> dict[str, int]:
    """Of several ceilings for a category, the lowest counts."""
    names = {name for each in ceilings for name in each}
    return {name: min(each[name] for each in ceilings if name in each) for name in sorted(names)}
