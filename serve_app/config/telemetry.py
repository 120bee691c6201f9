"""Traces, logs and figures in configuration files."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr, field_validator, model_validator

from deployments.telemetry.logs import Format, LogSpec, checked_level
from deployments.telemetry.tracing import TracingSpec
from serve_app.config.addresses import is_loopback
from serve_app.section import Section


class TracingSettings(Section):
    endpoint: Annotated[str, Field(pattern=r"^https?://[^/?#]+/")] | None = None
    sample: float = Field(default=1.0, ge=0, le=1)

    def spec(self) -> TracingSpec | None:
        """None: nothing is traced."""
        return None if self.endpoint is None else TracingSpec(self.endpoint, self.sample)


class LogSettings(Section):
    format: Format = "text"
    levels: dict[str, str] = {}

    @field_validator("levels")
    @classmethod
    def _known(cls, levels: dict[str, str]) -> dict[str, str]:
        for module, level in levels.items():
            checked_level(module, level)
        return levels

    def spec(self) -> LogSpec:
        return LogSpec(self.format, self.levels)


class MetricsSettings(Section):
    host: str = "127.0.0.1"
    port: int | None = Field(default=9464, ge=1, le=65535)
    token: SecretStr | None = None
    projects: int = Field(default=50, ge=0, le=1000)

    @model_validator(mode="after")
    def _not_for_everyone(self) -> MetricsSettings:
        if not is_loopback(self.host) and not (self.token and self.token.get_secret_value()):
            raise ValueError(f"token must be set where host is not loopback, but {self.host}")
        return self
