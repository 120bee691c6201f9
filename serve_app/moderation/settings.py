"""Settings of moderation: classifiers, thresholds, the deployment."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from deployments.contract.model import Precision
from deployments.contract.moderation import CATEGORIES, IMAGE_CLASSIFIERS, TEXT_CLASSIFIERS, ClassifierSpec
from deployments.contract.strict_settings import (
    NO_RESTART,
    Device,
    MaxReplicasPerNode,
    RayActorOptions,
    StrictSettings,
    Threads,
)


def _check_category(name: str) -> str:
    if name not in CATEGORIES:
        raise ValueError(f"must be one of {', '.join(CATEGORIES)}")
    return name


Category = Annotated[str, AfterValidator(_check_category)]
Level = Annotated[int, Field(ge=0)]


class Classifier(StrictSettings):
    backend: str
    """Text: lexicon, guard, …; images: skin, known-images, image-classifier, …."""
    checkpoint: str | None = None
    """Hub id, folder or file. For lexicon a YAML file of further terms."""
    revision: str | None = None
    """Branch, tag or commit on the hub. null: the newest."""
    labels: dict[str, Category] = {}
    """Category of each label of the checkpoint."""
    device: Device = "auto"
    dtype: Precision = "auto"

    def spec(self) -> ClassifierSpec:
        return ClassifierSpec(**self.model_dump())


def _check_backends(backends: Collection[str]) -> AfterValidator:
    def check(classifiers: tuple[Classifier, ...]) -> tuple[Classifier, ...]:
        for classifier in classifiers:
            if classifier.backend not in backends:
                raise ValueError(f"backend {classifier.backend!r} must be one of {', '.join(backends)}")
        return classifiers

    return AfterValidator(check)


TextClassifiers = Annotated[tuple[Classifier, ...], _check_backends(TEXT_CLASSIFIERS)]
ImageClassifiers = Annotated[tuple[Classifier, ...], _check_backends(IMAGE_CLASSIFIERS)]


class ModerationCatalog(StrictSettings):
    """Classifiers and thresholds. The highest score of several classifiers counts."""

    text: TextClassifiers = ()
    images: ImageClassifiers = ()
    memory_gb: float | None = None
    """GPU memory of all classifiers with their batches, GB of 10^9 bytes."""
    thresholds: dict[Category, Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(min_length=1)]]

    @model_validator(mode="after")
    def _check_both_kinds(self) -> ModerationCatalog:
        for name, classifiers in (("text", self.text), ("images", self.images)):
            if not classifiers:
                raise ValueError(
                    f"{name}: at least one classifier is needed; without one everything would pass unmoderated"
                )
        return self

    @model_validator(mode="after")
    def _every_category_once(self) -> ModerationCatalog:
        missing = [name for name in CATEGORIES if name not in self.thresholds]
        if missing:
            raise ValueError(f"thresholds: {', '.join(missing)} missing")
        for name, limits in self.thresholds.items():
            if list(limits) != sorted(limits):
                raise ValueError(f"thresholds: those of {name} must not fall: a higher tolerance lets more through")
        return self


class ModerationSettings(StrictSettings):
    enabled: bool = True
    """false turns moderation off."""
    text: TextClassifiers = ()
    """Classifiers of prompts. Empty: the catalog's."""
    images: ImageClassifiers = ()
    """Classifiers of images and videos. Empty: the catalog's."""
    call_s: float = Field(default=10.0, gt=0)
    """Seconds for one call."""
    video_call_s: float = Field(default=120.0, gt=0)
    """Seconds for the call of a video, which is read to its end."""
    wait_s: float = Field(default=120.0, ge=0)
    """Seconds that a task waits for a moderator that is down. Then it ends as Error without a charge."""
    when_down: Literal["refuse", "pass"] = "refuse"
    """pass lets unmoderated requests and results through after wait_s."""
    max_batch: int = Field(default=16, ge=1)
    """Texts or images in one batch."""
    threads: Threads = None
    min_replicas: Annotated[int, NO_RESTART] = Field(default=1, ge=0)
    """Minimum number of replicas. Every task needs one."""
    max_replicas: Annotated[int, NO_RESTART] = Field(default=1, ge=1)
    """Maximum number of replicas."""
    downscale_delay_s: Annotated[float, NO_RESTART] = Field(default=600.0, ge=0)
    """Seconds of low load before a replica stops."""
    ray_actor_options: RayActorOptions = {"num_cpus": 0}
    max_replicas_per_node: MaxReplicasPerNode = None
