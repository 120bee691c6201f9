"""From which score on each category is refused, by tolerance: `moderation.thresholds` of configs/catalog.yaml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import yaml

from deployments.contract.moderation import Scores

Thresholds: TypeAlias = Mapping[str, Sequence[float]]
"""By category, one for each tolerance; looser ones than a list has use its last. What has no list is never refused."""

_CATALOG: Final = Path(__file__).parents[3] / "configs" / "catalog.yaml"

FALLBACK: Final[Thresholds] = MappingProxyType(
    {
        "sexual content": (0.2, 0.4, 0.5, 0.7, 0.8, 0.9),
        "violence": (0.3, 0.5, 0.6, 0.8, 0.9, 0.95),
        "hate": (0.2, 0.3, 0.4, 0.5, 0.6, 0.7),
        "self-harm": (0.2, 0.3, 0.4, 0.5, 0.6, 0.7),
        "illegal acts": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
        "child safety": (0.1,),
    }
)


def thresholds(catalog: Path = _CATALOG) -> Thresholds:
    """Of a catalog; where it has none, the usual ones."""
    content: dict[str, Any] = yaml.safe_load(catalog.read_text(encoding="utf-8")) if catalog.exists() else {}
    return (content.get("moderation") or {}).get("thresholds") or FALLBACK


def refused(scores: Scores, limits: Thresholds, tolerance: int) -> frozenset[str]:
    """The categories for which a text with these scores is refused."""
    return frozenset(
        category
        for category, levels in limits.items()
        if scores.get(category, 0.0) >= levels[min(tolerance, len(levels) - 1)]
    )
