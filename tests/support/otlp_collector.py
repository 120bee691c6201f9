"""A collector of traces on a real socket, that keeps what it is sent: OTLP over HTTP, as protobuf."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SentSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

_PATH = "/v1/traces"


@dataclass(frozen=True)
class ReceivedSpan:
    name: str
    service: str
    """The process that wrote it."""
    trace: str
    id: str
    parent: str
    """Empty for one that begins a trace."""
    kind: str
    began_ns: int
    ended_ns: int
    failed: bool
    attributes: dict[str, Any]


@dataclass
class Collector:
    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    """What came, as it came."""

    def take(self, body: bytes) -> None:
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {each.key: _value(each.value) for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [_read(span, about["service.name"]) for span in scope.spans]

    def one(self, name: str) -> ReceivedSpan:
        [found] = [span for span in self.spans if span.name == name]
        return found


def _read(span: SentSpan, service: str) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        service=service,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=SentSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        began_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        attributes={each.key: _value(each.value) for each in span.attributes},
    )


def _value(value: AnyValue) -> Any:
    name = value.WhichOneof("value")
    return None if name is None else getattr(value, name)


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            known = self.path == _PATH and self.headers["content-type"] == "application/x-protobuf"
            if known:
                collector.take(body)
            self.send_response(200 if known else 404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}{_PATH}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
