"""Request bodies: limits by caller, size and time, and parsing.

The proxy in front waits for the first part of each body (`launcher/proxy_start.py`). The application checks what only
it can know: whose key it is, how much memory all requests hold together, and how much work parsing takes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, ClassVar, Final, cast

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.api.auth import has_credentials
from serve_app.api.json_files import NUL, NUL_MESSAGE, UPLOAD_HINT, read_json
from serve_app.api.memory import FREE_BYTES, InflightBudget, Reservation
from serve_app.inputs.fetch import reserve_memory
from serve_app.submission.errors import Invalid

KEYLESS_BYTES: Final = FREE_BYTES
"""Largest body of a client without a key."""
MAX_TEXT_BYTES: Final = 256 * 1024
"""Largest body on a route that takes no files."""
MAX_VALUES: Final = 50_000
"""Maximum number of commas and brackets in a body, its strings included; it bounds the time that parsing takes."""

_CLOSE: Final = {"Connection": "close"}
"""Closes the connection: the remainder of the body stays unread, so another request can't follow."""
_CURL_HINT: Final = ", which curl -d sends by itself: add -H 'Content-Type: application/json', or use --json"


class BodyLimits:
    """ASGI middleware: 413 for a body over `max_bytes`, 408 for one that takes longer than `max_s`, 503 for one over
    the memory budget.

    A declared length counts from the beginning. Bodies of over KEYLESS_BYTES and fetched files count against the budget
    from their first byte to the end of the response. Paths in `uploads` have limits of their own; their bodies are
    written to disk as they arrive and don't count. Paths in `small` take KEYLESS_BYTES from any client. On paths that
    start with `signed`, a signature in the query replaces the key.

    `check` raises HTTPException for wrong credentials. It is called only for bodies that are or may become larger than
    KEYLESS_BYTES.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int,
        max_inflight_bytes: int,
        check: Callable[[HTTPConnection], Awaitable[object]],
        uploads: Mapping[str, int],
        small: Collection[str] = (),
        max_s: float = 900.0,
        signed: str = "",
    ) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.budget = InflightBudget(max_inflight_bytes)
        self.check = check
        self.uploads = uploads
        self.small = frozenset(small)
        self.max_s = max_s
        self.signed = signed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with self.budget.reservation(_CLOSE) as body, self.budget.reservation({}) as fetches:
            token = reserve_memory.set(fetches.grow)
            try:
                # The app reads the body, because its handlers turn these exceptions into responses.
                await self.app(scope, _LimitedBody(self, scope, receive, body).receive, send)
            finally:
                reserve_memory.reset(token)

    def path_limit(self, path: str) -> int:
        return KEYLESS_BYTES if path in self.small else self.uploads.get(path, self.max_bytes)

    async def limit(self, request: HTTPConnection) -> int:
        """Returns the largest size of this body. Raises HTTPException where the headers already show a violation."""
        headers, max_bytes = request.headers, self.path_limit(request.scope["path"])
        signed = self.signed and request.scope["path"].startswith(self.signed)
        has_key, length = signed or has_credentials(headers), _declared_length(request)
        limit = max_bytes if has_key else min(max_bytes, KEYLESS_BYTES)
        if length is not None and length > limit:
            raise _too_large(limit, keyless=limit < max_bytes)
        is_chunked = length is None and "transfer-encoding" in headers
        if has_key and (is_chunked or (length or 0) > KEYLESS_BYTES):
            await self.check(request)
        return limit


class _LimitedBody:
    """An ASGI `receive` that raises HTTPException where a body breaks its limits."""

    def __init__(self, limits: BodyLimits, scope: Scope, receive: Receive, reservation: Reservation) -> None:
        self._limits, self._scope, self._receive, self._reservation = limits, scope, receive, reservation
        self._is_upload = scope["path"] in limits.uploads
        self._limit: int | None = None
        self._received_bytes = 0
        self._waited_s = 0.0
        self._is_complete = False

    async def receive(self) -> Message:
        if self._is_complete:
            return await self._receive()  # only the end of the connection can follow
        if self._limit is None:
            request = HTTPConnection(self._scope)
            self._limit = await self._limits.limit(request)
            self._reserve(_declared_length(request) or 0)
        message = await self._next_message()
        self._received_bytes += len(message.get("body", b""))
        if self._received_bytes > self._limit:
            raise _too_large(self._limit, keyless=self._limit < self._limits.path_limit(self._scope["path"]))
        self._reserve(self._received_bytes)
        self._is_complete = not message.get("more_body", False)
        return message

    async def _next_message(self) -> Message:
        started_at = time.monotonic()
        try:
            async with asyncio.timeout(None if self._is_upload else max(0.0, self._limits.max_s - self._waited_s)):
                return await self._receive()
        except TimeoutError:
            detail = f"The body came too slowly: it has to be complete within {self._limits.max_s:g} seconds"
            raise HTTPException(408, detail, _CLOSE) from None
        finally:
            self._waited_s += time.monotonic() - started_at

    def _reserve(self, size: int) -> None:
        if not self._is_upload:
            self._reservation.grow_to(size)


class JsonRoute(APIRoute):
    """A route that reads at most MAX_TEXT_BYTES of JSON."""

    takes_files: ClassVar[bool] = False

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, takes_files = super().get_route_handler(), self.takes_files

        async def handle_bounded(request: Request) -> Response:
            for name, value in request.query_params.multi_items():
                if "\0" in name + value:
                    raise Invalid(["query", name], NUL_MESSAGE, NUL)
            return await handle(_JsonRequest(request, takes_files))

        return handle_bounded


class FilesRoute(JsonRoute):
    """A JSON route whose strings may be images and videos in base64."""

    takes_files = True


class _JsonRequest(Request):
    def __init__(self, request: Request, takes_files: bool) -> None:
        super().__init__(request.scope, request.receive)
        self._takes_files = takes_files
        self._read: bytes | None = None

    async def body(self) -> bytes:
        if self._read is None:
            self._read = await self._receive_body()
        return self._read

    async def json(self) -> Any:
        data, self._read = await self.body(), b""
        return await asyncio.to_thread(read_json, data) if len(data) > KEYLESS_BYTES else read_json(data)

    async def _receive_body(self) -> bytes:
        body, values = bytearray(), 0
        async for chunk in self.stream():
            if not body and chunk:
                self._check_media_type()
            body += chunk
            if len(body) > MAX_TEXT_BYTES and not self._takes_files:
                raise HTTPException(413, f"Request body too large: at most {MAX_TEXT_BYTES} bytes here", _CLOSE)
            values += sum(map(chunk.count, (b",", b"[", b"{")))
            if values > MAX_VALUES:
                raise Invalid(["body"], f"The body should hold at most {MAX_VALUES} values", "too_many_values")
        return cast(bytes, body)  # copying it would block the event loop

    def _check_media_type(self) -> None:
        """Raises Invalid where the headers do not declare plain JSON."""
        encoding = self.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            message = f"Bodies must be sent without compression, not as {encoding[:20]}"
            raise Invalid(["header", "Content-Encoding"], message, "content_encoding")
        media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        main, _, sub = media_type.partition("/")
        if main != "application" or not (sub == "json" or sub.endswith("+json")):
            problem = f"not {media_type[:60]}" if media_type else "and it is missing"
            problem += _CURL_HINT if media_type == "application/x-www-form-urlencoded" else ""
            raise Invalid(
                ["header", "Content-Type"], f"Content-Type should be application/json, {problem}", "content_type"
            )


def _declared_length(request: HTTPConnection) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isdigit() else None


def _too_large(limit: int, *, keyless: bool) -> HTTPException:
    hint = " without an x-key header" if keyless else UPLOAD_HINT
    detail = f"Request body too large: at most {limit} bytes{hint if limit > KEYLESS_BYTES or keyless else ''}"
    return HTTPException(413, detail, _CLOSE)
