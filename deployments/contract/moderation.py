"""What is judged, by whom, and in which categories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from deployments.contract.model import Precision
from deployments.contract.objects import OptionsHere
from deployments.telemetry.logs import USUAL_LOGS, LogSpec

CATEGORIES: Final = ("sexual content", "violence", "hate", "self-harm", "illegal acts", "child safety")
"""As clients see them among the moderation reasons."""

Scores: TypeAlias = Mapping[str, float]
"""By category, how surely something belongs to it, 0 to 1. A category that is not there counts as 0."""

TEXT_JUDGES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "lexicon": "deployments.moderation.lexicon:Lexicon",
        "guard": "deployments.moderation.guard:Guard",
        "text-classifier": "deployments.moderation.text_classifier:TextClassifier",
    }
)
PICTURE_JUDGES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "skin": "deployments.moderation.skin:SkinJudge",
        "known-pictures": "deployments.moderation.known_pictures:KnownPictures",
        "picture-classifier": "deployments.moderation.picture_classifier:PictureClassifier",
    }
)
"""By the names that configurations have for them, where judges are. Adding one is a file and a line here."""


@dataclass(frozen=True, slots=True)
class JudgeSpec:
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
    """Of several judges, the highest score counts. At most `max_batch` texts or pictures are judged at a time."""

    text: tuple[JudgeSpec, ...]
    pictures: tuple[JudgeSpec, ...]
    objects_url: str
    objects_options: dict[str, Any] = field(default_factory=dict)
    objects_secrets: OptionsHere | None = None
    max_batch: int = 16
    threads: int | None = None
    logs: LogSpec = USUAL_LOGS
