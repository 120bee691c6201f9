"""The profile of a model: the durations of its stages, reported by replicas or measured by `gen-serve profile`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from deployments.contract import counts
from deployments.contract.counts import sum_field

_MIN_STEPS = 20
_MIN_SPREAD = 0.01
"""Variance of the step sizes over their squared mean. Below it, fixed and proportional cost can't be separated."""


class NoMeasurements(Exception):
    """The replicas' reports do not suffice for a profile. The message says why."""


class ModelProfile(BaseModel):
    """Durations of stages on one replica, in seconds.

    A step of images of `x` megapixels in total takes `fixed_s + per_megapixel_s * x`; a second of video counts as an
    image.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    fixed_s: float = Field(ge=0)
    per_megapixel_s: float = Field(ge=0)
    encode_s: float = Field(default=0.0, ge=0)
    """Seconds to encode an image's inputs, in parallel to other images' steps."""
    finish_s: float = Field(default=0.0, ge=0)
    """Seconds from an image's last step to its result."""
    overhead_s: float = Field(default=0.05, ge=0)
    """Seconds of a task outside the model: dispatch, moderation, storage."""
    load_s: float = Field(default=60.0, ge=0)
    """Seconds from the decision to add a replica until it takes tasks."""
    max_batch: int = Field(default=1, ge=1)
    max_running: int = Field(default=1, ge=1)

    @classmethod
    def from_counts(cls, work: Mapping[str, float], *, max_batch: int, max_running: int) -> Self:
        """Fits the profile by least squares to the sums that replicas report. Raises NoMeasurements."""
        steps, jobs = work.get(counts.STEPS, 0), work.get(counts.JOBS, 0)
        if steps < _MIN_STEPS or not jobs:
            raise NoMeasurements(f"{steps:.0f} steps were measured, at least {_MIN_STEPS} are needed")
        size, seconds = work[counts.STEP_SIZE] / steps, work[sum_field(counts.STEP)] / 1000 / steps
        variance = work[counts.STEP_SIZE_SQUARED] / steps - size * size
        slope = seconds / size
        if variance > _MIN_SPREAD * size * size:
            covariance = work[counts.STEP_SIZE_SECONDS] / steps - size * seconds
            slope = min(max(covariance / variance, 0.0), slope)
        loads = work.get(counts.LOADS, 0)
        return cls(
            fixed_s=max(seconds - slope * size, 0.0),
            per_megapixel_s=slope,
            encode_s=work.get(counts.seconds_field("encode"), 0) / jobs,
            finish_s=work.get(counts.seconds_field("finish"), 0) / jobs,
            load_s=work[counts.LOAD_S] / loads if loads else cls.model_fields["load_s"].default,
            max_batch=max_batch,
            max_running=max_running,
        )

    def step_s(self, megapixels: float) -> float:
        return self.fixed_s + self.per_megapixel_s * megapixels
