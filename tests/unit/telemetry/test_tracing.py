from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.otlp_collector import Collector, collecting

from deployments.telemetry import create_tracer
from deployments.telemetry.tracing import Tracer, TracingSpec, trace_id

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
SECRET = "a prompt that is nobody's business"

TRACED_OFF = """
import sys
from deployments.telemetry import create_tracer
tracer = create_tracer(None, "ingress")
with tracer.span("submit", "", {"gen.task": "t"}, "server") as span:
    span.note("a", 1)
    tracer.record("queue", span.traceparent, 1.0, 2.0)
tracer.close()
print([name for name in sys.modules if name.startswith("opentelemetry")], repr(span.traceparent))
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def tracer(collector: Collector, sample: float = 1.0) -> Tracer:
    return create_tracer(TracingSpec(collector.url, sample), "ingress")


def test_disabled_tracing_imports_nothing() -> None:
    result = subprocess.run([sys.executable, "-c", TRACED_OFF], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "[] ''"


def test_span_has_the_named_parent(collector: Collector) -> None:
    tracing = tracer(collector)
    with tracing.span("outer", SAMPLED, {"gen.task": "t", "gen.attempt": 2}, "server") as outer:
        with tracing.span("inner", outer.traceparent) as inner:
            inner.note("gen.status", "Ready")
        tracing.record("earlier", outer.traceparent, 10.0, 12.5)
        tracing.record("backward", outer.traceparent, 12.0, 11.0)
    tracing.close()
    outermost, inmost, earlier = (collector.one(name) for name in ("outer", "inner", "earlier"))
    assert (outermost.trace, outermost.parent, outermost.kind) == (TRACE, PARENT, "server")
    assert outermost.attributes == {"gen.task": "t", "gen.attempt": 2}
    assert {inmost.parent, earlier.parent} == {outermost.id}
    assert inmost.attributes == {"gen.status": "Ready"}
    assert (earlier.began_ns, earlier.ended_ns) == (10_000_000_000, 12_500_000_000)
    assert collector.one("backward").began_ns == collector.one("backward").ended_ns
    assert trace_id(outer.traceparent) == TRACE


@pytest.mark.parametrize("header", ["", "00-xyz", f"00-{'0' * 32}-{PARENT}-01", "é" * 500, SAMPLED.upper() + "-x"])
def test_invalid_traceparent_begins_a_trace(collector: Collector, header: str) -> None:
    tracing = tracer(collector)
    with tracing.span("submit", header):
        pass
    tracing.close()
    assert collector.one("submit").parent == ""
    assert collector.one("submit").trace != TRACE


def test_sampling_applies_to_traces_that_begin_here(collector: Collector) -> None:
    tracing = tracer(collector, sample=0.0)
    with tracing.span("begun here", "") as span:
        assert not int(span.traceparent[-2:], 16) & 1
        with tracing.span("below it", span.traceparent):
            pass
    with tracing.span("begun by a client", SAMPLED):
        pass
    tracing.close()
    assert [span.name for span in collector.spans] == ["begun by a client"]


def test_span_of_an_error_has_only_its_type(collector: Collector) -> None:
    tracing = tracer(collector)
    with pytest.raises(ValueError, match="prompt"), tracing.span("submit", ""):
        raise ValueError(SECRET)
    tracing.close()
    span = collector.one("submit")
    assert span.failed
    assert span.attributes == {"error.type": "ValueError"}
    assert SECRET.encode() not in b"".join(collector.bodies)


def test_missing_package_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deployments.telemetry.otlp", None)
    with pytest.raises(ValueError, match=r"tracing\.endpoint .*gen-serve\[otel\]"):
        create_tracer(TracingSpec("http://127.0.0.1:4318/v1/traces"), "ingress")
