"""Moderation specs: categories, classifiers, thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from deployments.contract.model import Precision
from deployments.contract.objects import OptionsHere
from deployments.proxies import ENVIRONMENT
from deployments.telemetry.logs import DEFAULT_LOGS, LogSpec

CATEGORIES: Final = ("sexual content", "violence", "hate", "self-harm", "illegal acts", "child safety")
"""Names that clients see among the moderation reasons."""

Scores: TypeAlias = Mapping[str, float]
"""Probability, 0 to 1, by category. A missing category counts as 0."""


def highest(all_scores: Iterable[Scores]) -> dict[str, float]:
    """Returns the highest score of each category."""
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
"""Classifiers by their names in configurations. A new one needs a file and a line here."""
WEIGHTLESS: Final = frozenset({"lexicon", "skin", "known-images"})
"""Classifiers without a network, which dispatchers run in their own process."""


@dataclass(frozen=True, slots=True)
class ClassifierSpec:
    """A classifier by its name above. `checkpoint` is a hub id, a folder or a file, depending on the backend.

    `labels` maps the checkpoint's own labels to categories; others are ignored.
    """

    backend: str
    checkpoint: str | None = None
    revision: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    device: str = "auto"
    dtype: Precision = "auto"


@dataclass(frozen=True, slots=True)
class ModeratorSpec:
    """Classifiers, of which the highest score counts. `max_batch` items are classified together at most."""

    text: tuple[ClassifierSpec, ...]
    images: tuple[ClassifierSpec, ...]
    objects_url: str
    objects_options: dict[str, Any] = field(default_factory=dict)
    objects_secrets: OptionsHere | None = None
    max_batch: int = 16
    threads: int | None = None
    logs: LogSpec = DEFAULT_LOGS
    proxy: str = ENVIRONMENT
    """The setting `network.proxy`, for `proxies.apply_proxy`."""

    def split(self) -> tuple[ModeratorSpec, ModeratorSpec]:
        """Returns the classifiers for the dispatchers' own process, and those for a deployment."""

        def part(weightless: bool) -> ModeratorSpec:
            text, images = (
                tuple(each for each in specs if (each.backend in WEIGHTLESS) == weightless)
                for specs in (self.text, self.images)
            )
            return replace(self, text=text, images=images)

        return part(weightless=True), part(weightless=False)


Ceilings: TypeAlias = Mapping[str, int]
"""Highest tolerance that is allowed, by category."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Tolerance of one task."""

    level: int
    ceilings: Ceilings = field(default_factory=dict)

    def level_for(self, category: str) -> int:
        return min(self.level, self.ceilings.get(category, self.level))


@dataclass(frozen=True, slots=True)
class Thresholds:
    by_category: Mapping[str, tuple[float, ...]]

    def categories_over(self, scores: Scores, tolerance: Tolerance) -> list[str]:
        """Returns the categories above their thresholds, highest score first. Those without thresholds never are."""
        # Not `>=`: NaN must not pass.
        over = [name for name, score in scores.items() if not score < self._limit(name, tolerance.level_for(name))]
        return sorted(over, key=lambda name: (-scores[name], name))

    def _limit(self, category: str, level: int) -> float:
        limits = self.by_category.get(category)
        return float("inf") if not limits else limits[min(level, len(limits) - 1)]


def lowest(*ceilings: Ceilings) -> dict[str, int]:
    """Returns the lowest ceiling of each category."""
    names = {name for each in ceilings for name in each}
    return {name: min(each[name] for each in ceilings if name in each) for name in sorted(names)}
