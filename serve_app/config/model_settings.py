"""Settings of models in a profile: differences from the catalog, and options of Ray Serve."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from deployments.contract.model import ModelConfig, Precision, TextEncoderSpec
from deployments.contract.strict_settings import (
    NO_RESTART,
    Device,
    MaxReplicasPerNode,
    RayActorOptions,
    StrictSettings,
    Threads,
)
from deployments.telemetry.logs import LogSpec


class AutoscalingSettings(StrictSettings):
    """Ray Serve's `autoscaling_config`, without its policy."""

    min_replicas: int = Field(default=1, ge=0)
    """Minimum number of replicas. 0 frees the memory when idle; the next task waits for loading."""
    max_replicas: int = Field(default=1, ge=1)
    """Maximum number of replicas."""
    target_wait_s: float | None = Field(default=None, gt=0)
    """Seconds in which all queued and running work should be done; for many GPUs. null: Ray scales by
    target_ongoing_requests."""
    initial_replicas: int | None = Field(default=None, ge=0)
    """Replicas at first. null: min_replicas."""
    target_ongoing_requests: float = Field(default=4.0, gt=0)
    """Tasks per replica to aim at; at most half of max_running where a second replica can start."""
    upscale_delay_s: float = Field(default=2.0, ge=0)
    """Seconds of load before a replica is added (Ray's own default: 30)."""
    downscale_delay_s: float = Field(default=60.0, ge=0)
    """Seconds of low load before one is removed (Ray's own default: 600); at least 3 * tasks.lease_s."""
    downscale_to_zero_delay_s: float | None = Field(default=None, ge=0)
    """Seconds without load before the last one is removed. null: downscale_delay_s."""
    upscaling_factor: float | None = Field(default=None, gt=0)
    """Multiplier of each increase. null: 1."""
    downscaling_factor: float | None = Field(default=None, gt=0)
    """Multiplier of each decrease. null: 1."""
    look_back_period_s: float = Field(default=5.0, gt=0)
    """Seconds over which Ray averages the load."""
    metrics_interval_s: float = Field(default=1.0, gt=0)
    """Seconds between load reports."""
    aggregation_function: Literal["mean", "max", "min"] = "mean"
    """Aggregation over these reports."""

    @model_validator(mode="after")
    def _in_order(self) -> AutoscalingSettings:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas ({self.min_replicas}) must be at most max_replicas ({self.max_replicas})")
        return self


class MemorySettings(StrictSettings):
    """GPU memory of a replica."""

    weights_gb: float = Field(gt=0)
    """Weights, GB of 10^9 bytes."""
    activations_gb: float = Field(default=0.0, ge=0)
    """Largest step or decoding of one task, GB; batches shrink to the memory that is left."""


class ModelSettings(ModelConfig):
    """A model in a profile. It overrides the catalog key by key; null keeps the catalog's value."""

    enabled: bool = True
    """false: neither the model nor endpoints that use it are served."""
    memory: MemorySettings | None = None
    """GPU memory, for gen-serve check. null: the catalog's, if the checkpoint is."""
    gpu_gb: float | None = Field(default=None, gt=0)
    """Memory of its GPU, GB of 10^9 bytes. null: gpu_gb of the profile."""
    steps: int | None = Field(default=None, ge=1)
    """Denoising steps if the request names none."""
    guidance: float | None = None
    """Guidance if the request names none."""
    text_encoder: str | None = None
    """Shared encoder of text_encoders, in place of the checkpoint's own. null: its own."""
    run_s: float | None = Field(default=None, gt=0)
    """Seconds from the first start of work to the end; then Error. null: tasks.run_s."""
    autoscaling_config: AutoscalingSettings = AutoscalingSettings()
    """Autoscaling of Ray Serve."""
    num_replicas: int | None = Field(default=None, ge=1)
    """Fixed number of replicas. null: autoscaling_config."""
    max_ongoing_requests: int | None = Field(default=None, ge=1)
    """Concurrent calls of a replica. null: max_running."""
    max_replicas_per_node: MaxReplicasPerNode = None
    ray_actor_options: RayActorOptions = {"num_cpus": 0}
    health_check_period_s: Annotated[float, NO_RESTART] = Field(default=2.0, gt=0)
    """Seconds between health checks."""
    health_check_timeout_s: Annotated[float, NO_RESTART] = Field(default=3.0, gt=0)
    """Seconds for a health check."""
    graceful_shutdown_timeout_s: Annotated[float, NO_RESTART] = Field(default=60.0, gt=0)
    """Seconds that a stopping replica waits for its tasks."""

    @model_validator(mode="before")
    @classmethod
    def _null_leaves_the_catalogs(cls, values: Any) -> Any:
        return {k: v for k, v in values.items() if v is not None} if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _scales_up(self) -> ModelSettings:
        if self.num_replicas is not None and "autoscaling_config" in self.model_fields_set:
            raise ValueError("num_replicas and autoscaling_config can't be combined")
        scales = self.max_replicas > max(self.min_replicas, 1)
        if scales and self.autoscaling_config.target_ongoing_requests > self.max_running / 2:
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
        """Returns those of `names` that are set here."""
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}


class TextEncoderSettings(StrictSettings):
    """A text encoder that several models share, in a deployment of its own."""

    checkpoint: str
    """Pipeline whose text encoders to load: hub id or folder."""
    revision: str | None = None
    """Branch, tag or commit on the hub. null: the newest."""
    device: Device = "auto"
    dtype: Precision = "auto"
    threads: Threads = None
    max_batch: int = Field(default=8, ge=1)
    """Prompts in one batch, of all models."""
    min_replicas: int = Field(default=1, ge=1)
    """Minimum number of replicas."""
    max_replicas: int = Field(default=1, ge=1)
    """Maximum number of replicas."""
    downscale_delay_s: float = Field(default=600.0, ge=0)
    """Seconds of low load before a replica stops."""
    ray_actor_options: RayActorOptions = {"num_cpus": 0}

    def spec(self, logs: LogSpec, proxy: str) -> TextEncoderSpec:
        options = self.model_dump(include={"checkpoint", "revision", "device", "dtype", "threads", "max_batch"})
        return TextEncoderSpec(**options, logs=logs, proxy=proxy)


class RewriterSettings(StrictSettings):
    enabled: bool = True
    """false leaves all prompts as they are."""
    asked_for: tuple[Literal["prompts", "edits", "ratios"], ...] = ("prompts", "edits", "ratios")
    """Jobs of the rewriter: prompts to enrich, prompts of edits, and open aspect ratios."""
    checkpoint: str | None = None
    """Causal language model: hub id, folder or bundled/<name>. null: the catalog's."""
    memory: MemorySettings | None = None
    """GPU memory, for gen-serve check. null: the catalog's, if the checkpoint is."""
    device: Device = "auto"
    dtype: Precision = "auto"
    timeout_s: float = Field(default=10.0, gt=0)
    """Seconds to rewrite, loading included; then the prompt stays as it is."""
    min_replicas: int = Field(default=0, ge=0)
    """Minimum number of replicas. 0: the first request starts one."""
    max_replicas: int = Field(default=1, ge=1)
    """Maximum number of replicas."""
    downscale_delay_s: float = Field(default=600.0, ge=0)
    """Seconds of low load before a replica stops."""
    ray_actor_options: RayActorOptions = {"num_cpus": 0}
