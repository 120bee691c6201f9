"""Settings of moderation: classifiers, thresholds, the deployment."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from deployments.contract.model import Precision
from deployments.contract.moderation import CATEGORIES, IMAGE_CLASSIFIERS, TEXT_CLASSIFIERS, ClassifierSpec
from deployments.contract.strict_settings import RayActorOptions, StrictSettings


def _check_category(name: str) -> str:
    if name not in CATEGORIES:
        raise ValueError(f"must be one of {', '.join(CATEGORIES)}")
    return name


Category = Annotated[str, AfterValidator(_check_category)]
Level = Annotated[int, Field(ge=0)]


class Classifier(StrictSettings):
    backend: str
    checkpoint: str | None = None
    """Hub id, folder or file, whatever the backend reads."""
    revision: str | None = None
    labels: dict[str, Category] = {}
    """The categories that the checkpoint's own labels stand for."""
    device: str = "auto"
    dtype: Precision = "auto"

    def spec(self) -> ClassifierSpec:
        return ClassifierSpec(**self.model_dump())


class _Classifiers(StrictSettings):
    text: tuple[Classifier, ...] = ()
    images: tuple[Classifier, ...] = ()

    @model_validator(mode="after")
    def _check_backends(self) -> _Classifiers:
        for kind, classifiers, backends in (
            ("text", self.text, TEXT_CLASSIFIERS),
            ("images", self.images, IMAGE_CLASSIFIERS),
        ):
            for classifier in classifiers:
                if classifier.backend not in backends:
                    raise ValueError(f"{kind}: backend {classifier.backend!r} must be one of {', '.join(backends)}")
        return self


class ModerationCatalog(_Classifiers):
    """Of several classifiers, the highest score counts."""

    memory_gb: float | None = None
    """What the classifiers' weights and batches take on a GPU, in GB of 10^9 bytes."""
    thresholds: dict[Category, Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(min_length=1)]]

    @model_validator(mode="after")
    def _check_both_kinds(self) -> ModerationCatalog:
        for kind, classifiers in (("text", self.text), ("images", self.images)):
            if not classifiers:
                raise ValueError(f"{kind}: at least one classifier, or what is not moderated would pass")
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


class ModerationSettings(_Classifiers):
    """`text` and `images` take the place of the catalog's, each where it is not empty."""

    enabled: bool = True
    call_s: float = Field(default=10.0, gt=0)
    video_call_s: float = Field(default=120.0, gt=0)
    wait_s: float = Field(default=120.0, ge=0)
    when_down: Literal["refuse", "pass"] = "refuse"
    max_batch: int = Field(default=16, ge=1)
    threads: int | None = Field(default=None, ge=1)
    min_replicas: int = Field(default=1, ge=0)
    max_replicas: int = Field(default=1, ge=1)
    downscale_delay_s: float = Field(default=600.0, ge=0)
    ray_actor_options: RayActorOptions = {"num_cpus": 0}
    max_replicas_per_node: int | None = Field(default=None, ge=1, le=100)
