"""From which score on each category is refused: `moderation.thresholds` of configs/catalog.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from deployments.contract.thresholds import Thresholds

_CATALOG: Final = Path(__file__).parents[3] / "configs" / "catalog.yaml"


def thresholds(catalog: Path = _CATALOG) -> Thresholds:
    """Raises FileNotFoundError, or KeyError for a catalog without moderation."""
    content: dict[str, Any] = yaml.safe_load(catalog.read_text(encoding="utf-8"))
    limits: dict[str, list[float]] = content["moderation"]["thresholds"]
    return Thresholds({category: tuple(levels) for category, levels in limits.items()})
