"""Settings of models in a profile: what differs from the catalog, and how Ray Serve runs the replicas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, model_validator

from deployments.contract.model import ModelConfig, Precision, TextEncoderSpec
from deployments.contract.strict_settings import Device, RayActorOptions, StrictSettings
from deployments.telemetry.logs import LogSpec


class AutoscalingSettings(StrictSettings):
    """Ray Serve's `autoscaling_config`, but for its policy."""

    target_wait_s: float | None = Field(default=None, gt=0)
    """Scales on seconds of work, queued and running: within so many seconds it should be done. Null: Ray's own policy,
    on requests that replicas have."""
    min_replicas: int = Field(default=1, ge=0)
    max_replicas: int = Field(default=1, ge=1)
    initial_replicas: int | None = Field(default=None, ge=0)
    target_ongoing_requests: float = Field(default=4.0, gt=0)
    upscale_delay_s: float = Field(default=2.0, ge=0)
    downscale_delay_s: float = Field(default=60.0, ge=0)
    downscale_to_zero_delay_s: float | None = Field(default=None, ge=0)
    upscaling_factor: float | None = Field(default=None, gt=0)
    downscaling_factor: float | None = Field(default=None, gt=0)
    look_back_period_s: float = Field(default=5.0, gt=0)
    metrics_interval_s: float = Field(default=1.0, gt=0)
    aggregation_function: Literal["mean", "max", "min"] = "mean"

    @model_validator(mode="after")
    def _in_order(self) -> AutoscalingSettings:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas ({self.min_replicas}) must be at most max_replicas ({self.max_replicas})")
        return self


class MemorySettings(StrictSettings):
    """What a replica needs on its GPU, in GB of 10^9 bytes."""

    weights_gb: float = Field(gt=0)
    activations_gb: float = Field(default=0.0, ge=0)
    """Of a step or a decoding alone, at the largest size that endpoints take; batches shrink to what is there."""


class ModelSettings(ModelConfig):
    """A model in a profile. What is set here takes the place of the catalog's; null leaves it."""

    enabled: bool = True
    memory: MemorySettings | None = None
    gpu_gb: float | None = Field(default=None, gt=0)
    steps: int | None = Field(default=None, ge=1)
    guidance: float | None = None
    text_encoder: str | None = None
    run_s: float | None = Field(default=None, gt=0)
    autoscaling_config: AutoscalingSettings = AutoscalingSettings()
    num_replicas: int | None = Field(default=None, ge=1)
    """A fixed number of replicas, in place of `autoscaling_config`."""
    max_ongoing_requests: int | None = Field(default=None, ge=1)
    """Calls a replica takes at a time. Null: `max_running`; more wait inside the replica, where nobody sees them."""
    max_replicas_per_node: int | None = Field(default=None, ge=1, le=100)
    ray_actor_options: RayActorOptions = {"num_cpus": 0}
    health_check_period_s: float = Field(default=2.0, gt=0)
    health_check_timeout_s: float = Field(default=3.0, gt=0)
    graceful_shutdown_timeout_s: float = Field(default=60.0, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _null_leaves_the_catalogs(cls, values: Any) -> Any:
        return {k: v for k, v in values.items() if v is not None} if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _scales_up(self) -> ModelSettings:
        if self.num_replicas is not None and "autoscaling_config" in self.model_fields_set:
            raise ValueError("num_replicas and autoscaling_config can't be combined")
        if self.autoscaling_config.target_ongoing_requests > self.max_running / 2:
            raise ValueError(
                "autoscaling_config.target_ongoing_requests must be at most half of max_running, "
                "else a full replica never asks for a second one"
            )
        return self

    @property
    def min_replicas(self) -> int:
        return self.num_replicas or self.autoscaling_config.min_replicas

    @property
    def max_replicas(self) -> int:
        return self.num_replicas or self.autoscaling_config.max_replicas

    def overrides(self, names: Iterable[str]) -> dict[str, Any]:
        """What of `names` is set here."""
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}


class TextEncoderSettings(StrictSettings):
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
    ray_actor_options: RayActorOptions = {"num_cpus": 0}

    def spec(self, logs: LogSpec, proxy: str) -> TextEncoderSpec:
        options = self.model_dump(include={"checkpoint", "revision", "device", "dtype", "threads", "max_batch"})
        return TextEncoderSpec(**options, logs=logs, proxy=proxy)


class RewriterSettings(StrictSettings):
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
    ray_actor_options: RayActorOptions = {"num_cpus": 0}
