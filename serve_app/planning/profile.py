"""The profile of a model: what its work takes on one replica, as replicas report it or `gen-serve profile` measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from deployments.contract import counts
from deployments.contract.counts import sum_field

_LEAST_STEPS = 20
"""Fewer say nothing."""
_LEAST_SPREAD = 0.01
"""Of the sizes of steps, as variance over squared mean: with less, what is fixed can't be told from what grows."""


class NoMeasurements(Exception):
    """Why there is no profile, fit for a person."""


class ModelProfile(BaseModel):
    """Seconds that stages take on one replica. A step of images of `x` megapixels in all takes
    `fixed_s + per_megapixel_s * x`; a second of video counts as an image."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fixed_s: float = Field(ge=0)
    per_megapixel_s: float = Field(ge=0)
    encode_s: float = Field(default=0.0, ge=0)
    """Of an image, before its steps, while others take steps."""
    finish_s: float = Field(default=0.0, ge=0)
    """Of an image, after them."""
    overhead_s: float = Field(default=0.05, ge=0)
    """Of a task outside the model: dispatch, moderation, storing."""
    load_s: float = Field(default=60.0, ge=0)
    """From the decision for one more replica until it works."""
    max_batch: int = Field(default=1, ge=1)
    max_running: int = Field(default=1, ge=1)

    @classmethod
    def from_counts(cls, work: Mapping[str, float], *, max_batch: int, max_running: int) -> Self:
        """From sums that replicas reported (`deployments/contract/counts.py`): the line of least squares through all
        steps. Raises NoMeasurements."""
        steps, jobs = work.get(counts.STEPS, 0), work.get(counts.JOBS, 0)
        if steps < _LEAST_STEPS or not jobs:
            raise NoMeasurements(f"{steps:.0f} steps were measured, at least {_LEAST_STEPS} are needed")
        size, seconds = work[counts.STEP_SIZE] / steps, work[sum_field(counts.STEP)] / 1000 / steps
        variance = work[counts.STEP_SIZE_SQUARED] / steps - size * size
        slope = seconds / size
        if variance > _LEAST_SPREAD * size * size:
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

    def seconds(self, megapixels: float) -> float:
        """Of a step."""
        return self.fixed_s + self.per_megapixel_s * megapixels
