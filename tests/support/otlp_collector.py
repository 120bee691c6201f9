"""A trace collector on a real socket: OTLP over HTTP, as protobuf."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SentSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from support.website import Website, serving


@dataclass(frozen=True)
class ReceivedSpan:
    name: str
    service: str
    """Name of the process that wrote the span."""
    trace: str
    id: str
    parent: str
    """Id of the parent span; empty for a trace's first span."""
    kind: str
    began_ns: int
    ended_ns: int
    failed: bool
    attributes: dict[str, Any]


@dataclass
class Collector:
    site: Website
    url: str

    @property
    def bodies(self) -> list[bytes]:
        """Bodies of all exports."""
        assert all(headers["content-type"] == "application/x-protobuf" for headers, _ in self.site.received)
        return [body for _, body in self.site.received]

    @property
    def spans(self) -> list[ReceivedSpan]:
        resources = [each for body in self.bodies for each in ExportTraceServiceRequest.FromString(body).resource_spans]
        return [
            _read(span, next(str(_value(each.value)) for each in about if each.key == "service.name"))
            for resource in resources
            for about in (resource.resource.attributes,)
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def one(self, name: str) -> ReceivedSpan:
        [match] = [span for span in self.spans if span.name == name]
        return match


def _read(span: SentSpan, service: str) -> ReceivedSpan:
    return ReceivedSpan(
        span.name,
        service,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        SentSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code == Status.STATUS_CODE_ERROR,
        {each.key: _value(each.value) for each in span.attributes},
    )


def _value(value: AnyValue) -> Any:
    name = value.WhichOneof("value")
    return None if name is None else getattr(value, name)


@contextmanager
def collecting() -> Iterator[Collector]:
    with serving() as site:
        yield Collector(site, site.set_page("/v1/traces"))
