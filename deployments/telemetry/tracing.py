"""Tracing of tasks: every process writes the spans of its own work.

A W3C `traceparent` connects the spans of a task. It is stored with the task, and sent to the model with the job and to
webhook destinations as a header, so that each process knows the parent of its spans.

Attributes are ids, names and numbers: never a prompt, a key or a link, and of an error only its type.

Without tracing, nothing is imported or written: `OFF` returns the same object for every span.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

Attributes: TypeAlias = Mapping[str, str | int | float]
SpanType: TypeAlias = Literal["internal", "server", "client", "consumer"]
"""OpenTelemetry's span kinds: answers a request, makes one, takes from a queue, or none of these."""


@dataclass(frozen=True, slots=True)
class TracingSpec:
    """`endpoint` takes OTLP over HTTP, such as `http://collector:4318/v1/traces`. `sample` is the share of traces begun
    here that are written; a client decides about those that it begins."""

    endpoint: str
    sample: float = 1.0


class Span:
    """A span that is not written."""

    __slots__ = ()
    traceparent: str = ""
    """Parent of the spans below this one."""

    def note(self, name: str, value: str | int) -> None:
        """Adds an attribute."""


class Tracer(Protocol):
    def span(
        self, name: str, parent: str, attributes: Attributes = ..., span_type: SpanType = ...
    ) -> AbstractContextManager[Span]:
        """Records a span around a block. `parent` is a traceparent; any other text begins a trace."""
        ...

    def record(
        self, name: str, parent: str, started_at: float, finished_at: float, attributes: Attributes = ...
    ) -> None:
        """Records a span of finished work, in epoch seconds."""
        ...

    def close(self) -> None:
        """Sends the remaining spans; blocks for a moment."""
        ...


class _Off:
    _span: Final = nullcontext(Span())

    def span(
        self, name: str, parent: str, attributes: Attributes | None = None, span_type: SpanType = "internal"
    ) -> AbstractContextManager[Span]:
        return self._span

    def record(
        self, name: str, parent: str, started_at: float, finished_at: float, attributes: Attributes | None = None
    ) -> None:
        pass

    def close(self) -> None:
        pass


OFF: Final[Tracer] = _Off()


def trace_id(traceparent: str) -> str:
    """Returns the trace id of a traceparent; empty for an empty one."""
    return traceparent[3:35]
