"""Settings of models: checkpoints, devices, batches, replicas."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from deployments.contract.model import (
    BACKENDS,
    BACKGROUND_REMOVERS,
    ENHANCE_NOISE,
    Caches,
    CfgConfig,
    Enlarge,
    MattingSpec,
    Order,
    Precision,
    Sharing,
    TextEncoderSpec,
    VideoGuidance,
)
from deployments.telemetry.logs import LogSpec
from serve_app.strict_settings import Actor, Device, Section


def _known_backend(name: str) -> str:
    if name not in BACKENDS:
        raise ValueError(f"must be one of {', '.join(BACKENDS)}")
    return name


Backend = Annotated[str, AfterValidator(_known_backend)]
"""What runs a model: the step engine's diffusion, or something that restores a picture in one pass."""


class AutoscalingSettings(Section):
    min_replicas: int = Field(default=1, ge=0)
    max_replicas: int = Field(default=1, ge=1)
    target_ongoing_requests: float = Field(default=4.0, gt=0)
    upscale_delay_s: float = Field(default=2.0, ge=0)
    downscale_delay_s: float = Field(default=60.0, ge=0)
    look_back_period_s: float = Field(default=5.0, gt=0)
    metrics_interval_s: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _in_order(self) -> AutoscalingSettings:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas ({self.min_replicas}) must be at most max_replicas ({self.max_replicas})")
        return self


class MattingSettings(Section):
    """What cuts the subject out of a picture where its background is to go."""

    backend: str = "grabcut"
    checkpoint: str | None = None
    revision: str | None = None
    device: Device = "auto"

    @model_validator(mode="after")
    def _known_backend(self) -> MattingSettings:
        if self.backend not in BACKGROUND_REMOVERS:
            raise ValueError(f"backend {self.backend!r} must be one of {', '.join(BACKGROUND_REMOVERS)}")
        return self

    def spec(self) -> MattingSpec:
        return MattingSpec(**self.model_dump())


class SharingSettings(Section):
    """How a model shares a device with others of the same machine."""

    device: str = Field(pattern="^[A-Za-z0-9_.-]+$")
    """Any name, the same for all that share it."""
    priority: Literal["high", "low"]
    max_wait_s: float = Field(default=10.0, ge=0)
    turn_s: float | None = Field(default=None, gt=0)
    """Of models that the device has room for one at a time; None: there is room for it beside the others."""

    def spec(self) -> Sharing:
        return Sharing(**self.model_dump(exclude={"turn_s"}))


class CacheSettings(Section):
    """What a replica keeps for further jobs, in megabytes."""

    prompts_mb: int = Field(default=256, ge=0)
    references_mb: int = Field(default=256, ge=0)
    adapters_mb: int = Field(default=1024, ge=0)

    def spec(self) -> Caches:
        return Caches(**self.model_dump())


class CfgSettings(Section):
    """Classifier-free guidance (CFG) of models that are not distilled to it."""

    scale: float = Field(ge=1, le=100, allow_inf_nan=False)
    interval: tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(ge=0, le=1)]] = (0.0, 1.0)
    """Flow times, 1 for noise alone, the smaller one first."""

    @field_validator("interval")
    @classmethod
    def _in_order(cls, interval: tuple[float, float]) -> tuple[float, float]:
        if interval[0] > interval[1]:
            raise ValueError("the first flow time must be at most the second: [0.5, 0.9]")
        return interval

    def spec(self) -> CfgConfig:
        return CfgConfig(**self.model_dump())


class MemorySettings(Section):
    """What a replica needs on its GPU, in GB of 10^9 bytes."""

    weights_gb: float = Field(gt=0)
    activations_gb: float = Field(default=0.0, ge=0)
    """Of a step or a decoding alone, at the largest size that endpoints take; batches shrink to what is there."""


class VideoGuidanceSettings(Section):
    """Guidance of clips in more parts than CFG."""

    audio: float = Field(default=7.0, ge=1, le=100)
    stg: float = Field(default=1.0, ge=0, le=100)
    stg_blocks: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(28,), min_length=1)
    modality: float = Field(default=3.0, ge=1, le=100)
    rescale: float = Field(default=0.7, ge=0, le=1)

    def spec(self) -> VideoGuidance:
        return VideoGuidance(**self.model_dump())


class ModelSettings(Section):
    enabled: bool = True
    backend: Backend | None = None
    checkpoint: str | None = None
    memory: MemorySettings | None = None
    gpu_gb: float | None = Field(default=None, gt=0)
    steps: int | None = Field(default=None, ge=1)
    guidance: float | None = None
    device: Device = "auto"
    dtype: Precision = "auto"
    text_encoder: str | None = None
    attention: list[str] = ["native"]
    packed_attention: list[str] = ["sdpa_loop"]
    compile: bool = False
    threads: int | None = Field(default=None, ge=1)
    render_side: int | None = Field(default=None, ge=32)
    enlarge: Enlarge = "smooth"
    channels_last: bool = False
    tile_above: int | None = Field(default=None, ge=256, multiple_of=64)
    cfg: CfgSettings | None = None
    preview_every: float | None = Field(default=None, gt=0, le=1)
    preview_interval_s: float = Field(default=1.0, ge=0)
    max_running: int = Field(default=16, ge=1)
    max_batch: int = Field(default=8, ge=1)
    order: Order = "aged"
    step_goal_s: float | None = Field(default=None, gt=0)
    step_limit_s: float = Field(default=120.0, gt=0)
    run_s: float | None = Field(default=None, gt=0)
    caches: CacheSettings = CacheSettings()
    matting: MattingSettings | None = None
    sharing: SharingSettings | None = None
    distilled: bool | None = None
    enhance_noise: float = Field(default=ENHANCE_NOISE, gt=0, le=1)
    video_guidance: VideoGuidanceSettings | None = None
    keyframe_crf: int | None = Field(default=None, ge=0, le=51)
    autoscaling: AutoscalingSettings = AutoscalingSettings()
    actor: Actor = {"num_cpus": 0}
    health_check_period_s: float = Field(default=2.0, gt=0)
    health_check_timeout_s: float = Field(default=3.0, gt=0)
    drain_s: float = Field(default=60.0, gt=0)

    @model_validator(mode="after")
    def _batch_is_full_in_the_engine(self) -> ModelSettings:
        if "max_batch" in self.model_fields_set and self.max_batch > self.max_running:
            raise ValueError(f"max_batch ({self.max_batch}) must be at most max_running ({self.max_running})")
        return self

    @model_validator(mode="after")
    def _scales_up(self) -> ModelSettings:
        if self.autoscaling.target_ongoing_requests > self.max_running / 2:
            raise ValueError(
                "autoscaling.target_ongoing_requests must be at most half of max_running, "
                "else a full replica never asks for a second one"
            )
        return self


class TextEncoderSettings(Section):
    """Text encoders that several models have in common, in processes of their own."""

    checkpoint: str
    revision: str | None = None
    device: Device = "auto"
    dtype: Precision = "auto"
    threads: int | None = Field(default=None, ge=1)
    max_batch: int = Field(default=8, ge=1)
    min_replicas: int = Field(default=1, ge=1)
    max_replicas: int = Field(default=1, ge=1)
    downscale_delay_s: float = Field(default=600.0, ge=0)
    actor: Actor = {"num_cpus": 0}

    def spec(self, logs: LogSpec) -> TextEncoderSpec:
        told = self.model_dump(include={"checkpoint", "revision", "device", "dtype", "threads", "max_batch"})
        return TextEncoderSpec(**told, logs=logs)


class RewriterSettings(Section):
    enabled: bool = True
    memory: MemorySettings | None = None
    asked_for: tuple[Literal["prompts", "edits", "ratios"], ...] = ("prompts", "edits", "ratios")
    """What of a request it is given: prompts to enrich, prompts of edits, and the choice of a ratio that is open."""
    checkpoint: str | None = None
    device: Device = "auto"
    dtype: Precision = "auto"
    timeout_s: float = Field(default=10.0, gt=0)
    min_replicas: int = Field(default=0, ge=0)
    max_replicas: int = Field(default=1, ge=1)
    downscale_delay_s: float = Field(default=600.0, ge=0)
    actor: Actor = {"num_cpus": 0}
