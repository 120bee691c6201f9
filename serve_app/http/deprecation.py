"""Tells the clients of endpoints that are on their way out: `Deprecation` (RFC 9745) and `Sunset` (RFC 8594)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from email.utils import format_datetime

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def notices(since: date, sunset: date | None) -> dict[str, str]:
    """The headers of an endpoint deprecated `since` a day that will answer until `sunset`; days begin in UTC."""
    headers = {"Deprecation": f"@{int(_start(since).timestamp())}"}
    if sunset is not None:
        headers["Sunset"] = format_datetime(_start(sunset), usegmt=True)
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
