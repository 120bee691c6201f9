"""OTLP export of traces by OpenTelemetry's SDK, imported only when tracing is on.

The SDK has further settings in its environment variables: `OTEL_EXPORTER_OTLP_HEADERS` (a collector's token),
`OTEL_EXPORTER_OTLP_CERTIFICATE`, `OTEL_RESOURCE_ATTRIBUTES`. Spans wait in a bounded buffer and are dropped while the
collector can't be reached, so that no work waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import Span as SdkSpan
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from deployments.proxies import proxy_for
from deployments.telemetry.tracing import Attributes, Span, SpanType, TracingSpec

_SEND_EVERY_MS: Final = 1000
_NAMESPACE: Final = "gen-serve"
_W3C: Final = TraceContextTextMapPropagator()
_HEADER: Final = "traceparent"
_NANOSECONDS: Final = 1e9
_EXPORTER: Final = "opentelemetry.exporter.otlp"


class _OtlpSpan(Span):
    __slots__ = ("_span", "traceparent")

    def __init__(self, span: SdkSpan) -> None:
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, set_span_in_context(span, Context()))
        self._span = span
        self.traceparent = carrier[_HEADER]

    def note(self, name: str, value: str | int) -> None:
        self._span.set_attribute(name, value)


class OtlpTracer:
    def __init__(self, spec: TracingSpec, service: str) -> None:
        self._provider = TracerProvider(
            resource=Resource.create({"service.namespace": _NAMESPACE, "service.name": service}),
            sampler=ParentBasedTraceIdRatio(spec.sample),
        )
        # Without a collector: logs a line per batch, not one per try.
        logging.getLogger(_EXPORTER).setLevel(logging.ERROR)
        session = requests.Session()
        session.trust_env = False
        if proxy := proxy_for(spec.endpoint):
            session.proxies = {"http": proxy, "https": proxy}
        exporter = OTLPSpanExporter(endpoint=spec.endpoint, session=session)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=_SEND_EVERY_MS))
        self._tracer = self._provider.get_tracer(_NAMESPACE)

    @contextmanager
    def span(
        self, name: str, parent: str, attributes: Attributes | None = None, span_type: SpanType = "internal"
    ) -> Iterator[Span]:
        span = self._tracer.start_span(
            name, _parse_parent(parent), SpanKind[span_type.upper()], attributes, record_exception=False
        )
        try:
            yield _OtlpSpan(span)
        except BaseException as problem:
            # Only the type, as messages may repeat what a client wrote.
            span.set_attribute("error.type", type(problem).__name__)
            span.set_status(StatusCode.ERROR)
            raise
        finally:
            span.end()

    def record(
        self, name: str, parent: str, started_at: float, finished_at: float, attributes: Attributes | None = None
    ) -> None:
        span = self._tracer.start_span(
            name, _parse_parent(parent), attributes=attributes, start_time=round(started_at * _NANOSECONDS)
        )
        span.end(round(max(started_at, finished_at) * _NANOSECONDS))

    def close(self) -> None:
        self._provider.shutdown()


def _parse_parent(parent: str) -> Context:
    """Returns the context of a traceparent; an empty one for any other text."""
    return _W3C.extract({_HEADER: parent}, Context())
