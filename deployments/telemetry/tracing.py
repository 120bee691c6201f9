"""Tracing of tasks: spans are written where the work is done.

A W3C `traceparent` holds the spans of a task together. It is stored with the task, and goes to the model with the job
and to webhook destinations as a header: so each process can name the parent of its spans.

Attributes are ids, names and numbers: never a prompt, a key or a link, and of an error its type alone.

Off, nothing is imported and nothing is written: `OFF` answers every call with the same object.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

Attributes: TypeAlias = Mapping[str, str | int | float]
Kind: TypeAlias = Literal["internal", "server", "client", "consumer"]
"""As OpenTelemetry has them: what answers a request, makes one, takes what was queued; else internal."""


@dataclass(frozen=True, slots=True)
class TracingSpec:
    """`endpoint` takes OTLP over HTTP, as `http://collector:4318/v1/traces`. `sample` is the share of the traces begun
    here that are written; one that a client began is written if that client says so."""

    endpoint: str
    sample: float = 1.0


class Span:
    """One that is not written."""

    __slots__ = ()
    traceparent: str = ""
    """Of this span, for those below it."""

    def note(self, name: str, value: str | int) -> None:
        """Adds an attribute."""


class Tracer(Protocol):
    def span(
        self, name: str, parent: str, attributes: Attributes = ..., kind: Kind = ...
    ) -> AbstractContextManager[Span]:
        """A span for as long as the work inside takes. `parent` is a traceparent; any other text begins a trace."""
        ...

    def record(self, name: str, parent: str, began: float, ended: float, attributes: Attributes = ...) -> None:
        """A span of work that is over, in epoch seconds."""
        ...

    def close(self) -> None:
        """Sends what is left; blocks for a moment."""
        ...


class _Off:
    _span: Final = nullcontext(Span())

    def span(
        self, name: str, parent: str, attributes: Attributes | None = None, kind: Kind = "internal"
    ) -> AbstractContextManager[Span]:
        return self._span

    def record(self, name: str, parent: str, began: float, ended: float, attributes: Attributes | None = None) -> None:
        pass

    def close(self) -> None:
        pass


OFF: Final[Tracer] = _Off()


def create_tracer(spec: TracingSpec | None, service: str) -> Tracer:
    """What writes the spans of this process, which traces show as `service`. Raises ValueError where what sends them is
    not installed."""
    if spec is None:
        return OFF
    try:
        from deployments.telemetry.otlp import OtlpTracer
    except ImportError as problem:
        raise ValueError(
            "tracing.endpoint is set, but what sends traces is not installed: pip install 'gen-serve[otel]'"
        ) from problem
    return OtlpTracer(spec, service)


def trace_id(traceparent: str) -> str:
    """Of a stored traceparent; empty for none."""
    return traceparent[3:35]
