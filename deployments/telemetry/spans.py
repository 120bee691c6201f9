"""Spans of traces, and their attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

Attributes: TypeAlias = Mapping[str, str | int | float]
SpanType: TypeAlias = Literal["internal", "server", "client", "consumer"]
"""OpenTelemetry's span kinds: answers a request, makes one, takes from a queue, or none of these."""


class Span:
    """A span that is not written."""

    __slots__ = ()
    traceparent: str = ""
    """Parent of the spans below this one."""

    def note(self, name: str, value: str | int) -> None:
        """Adds an attribute."""
