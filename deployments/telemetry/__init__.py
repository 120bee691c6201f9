"""Telemetry: traces and logs, the same on both sides of the contract."""

from __future__ import annotations

from deployments.telemetry.tracing import OFF, Tracer, TracingSpec


def create_tracer(spec: TracingSpec | None, service: str) -> Tracer:
    """Returns the tracer of this process, which traces show as `service`. Raises ValueError if the exporter is not
    installed."""
    if spec is None:
        return OFF
    try:
        from deployments.telemetry.otlp import OtlpTracer
    except ImportError as problem:
        raise ValueError(
            "tracing.endpoint is set, but what sends traces is not installed: pip install 'gen-serve[otel]'"
        ) from problem
    return OtlpTracer(spec, service)
