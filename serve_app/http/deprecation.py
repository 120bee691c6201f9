"""Tells the clients of endpoints that are on their way out, or gone: `Deprecation` (RFC 9745), `Sunset` (RFC 8594), and
where to go instead: `Link` with `successor-version` (RFC 5829).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from email.utils import format_datetime

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.config.endpoint import Deprecated


def notices(deprecated: Deprecated) -> dict[str, str]:
    """The headers of such an endpoint; days begin in UTC."""
    headers = {"Deprecation": f"@{int(_start(deprecated.since).timestamp())}"}
    if deprecated.sunset is not None:
        headers["Sunset"] = format_datetime(_start(deprecated.sunset), usegmt=True)
    if deprecated.successors:
        headers["Link"] = ", ".join(f'</v1/{name}>; rel="successor-version"' for name in deprecated.successors)
    return headers


def _start(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


class DeprecationNotices:
    """ASGI middleware: adds `headers_of` a path to every answer there, errors included."""

    def __init__(self, app: ASGIApp, headers_of: Mapping[str, Mapping[str, str]]) -> None:
        self.app = app
        self.headers_of = headers_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self.headers_of.get(scope["path"]) if scope["type"] == "http" else None
        if headers is None:
            await self.app(scope, receive, send)
            return

        async def noticed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers)
            await send(message)

        await self.app(scope, receive, noticed)
