"""Request bodies: limits by caller, size and time, and parsing.

A proxy stands in front and waits for the first part of each body (`launcher/proxy_start.py`). Here is what only the
application can know: whose key it is, how much all requests hold together, and what their JSON asks of its reader.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final, cast

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.api.auth import has_credentials
from serve_app.api.errors import SHORTLY
from serve_app.api.json_files import NUL, NUL_MESSAGE, UPLOAD_HINT, read_json
from serve_app.inputs.fetch import hold
from serve_app.submission.errors import Invalid

KEYLESS_BYTES: Final = 64 * 1024
"""What is read of anybody; more only of clients whose key is valid, and while there is room."""
MAX_TEXT_BYTES: Final = 256 * 1024
"""Of a body on a route that takes no files."""
MAX_VALUES: Final = 50_000
"""Commas and brackets of a body, those in its prompts too: what reading it takes beside its length."""

_CLOSE: Final = {"Connection": "close"}
"""What is left of the body stays unread, so the connection can't be used again."""
_NO_ROOM: Final = "Too many large requests at a time, nothing was accepted or charged; try again shortly"
_CURL_HINT: Final = ", which curl -d sends by itself: add -H 'Content-Type: application/json', or use --json"


class BodyLimits:
    """ASGI middleware: 413 by the declared length, else as soon as more than `max_bytes` have come; 408 for a body that
    has been waited for longer than `max_s`.

    503 where all bodies of over KEYLESS_BYTES together, and what is fetched for requests, from their first byte to the
    end of the answer, would be more than `max_inflight_bytes`; a declared length counts from the beginning. `uploads`
    names paths with a limit of their own, whose bodies go to disk as they come and count for nothing here; those of
    `small` take KEYLESS_BYTES of anybody. Below `signed` a signature in the query is the key.

    `check` raises the HTTPException that a client with wrong credentials is to see; it is asked only when a body is, or
    may become, larger than KEYLESS_BYTES.
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
        self.max_inflight_bytes = max_inflight_bytes
        self.check = check
        self.uploads = uploads
        self.small = frozenset(small)
        self.max_s = max_s
        self.signed = signed
        self._inflight_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        upload = scope["path"] in self.uploads
        most = KEYLESS_BYTES if scope["path"] in self.small else self.uploads.get(scope["path"], self.max_bytes)
        limit: int | None = None
        received_bytes, waited_s, complete = 0, 0.0, False

        # Inside the app, where the exceptions become answers: it asks for the body before anything else.
        async def receive_within_limits() -> Message:
            nonlocal limit, received_bytes, waited_s, complete
            if complete:
                return await receive()  # only the end of the connection can still come
            if limit is None:
                request = HTTPConnection(scope)
                limit = await self._limit(request, most)
                if not upload:
                    body(_declared_length(request) or 0)
            began = time.monotonic()
            try:
                async with asyncio.timeout(None if upload else max(0.0, self.max_s - waited_s)):
                    message = await receive()
            except TimeoutError:
                detail = f"The body came too slowly: it has to be complete within {self.max_s:g} seconds"
                raise HTTPException(408, detail, _CLOSE) from None
            waited_s += time.monotonic() - began
            received_bytes += len(message.get("body", b""))
            if received_bytes > limit:
                raise _too_large(limit, keyless=limit < most)
            if not upload:
                body(received_bytes)
            complete = not message.get("more_body", False)
            return message

        with self._room(_CLOSE) as body, self._room({}) as grow_fetches:
            total = 0

            def fetch(size: int) -> None:
                nonlocal total
                total += size
                grow_fetches(total)

            token = hold.set(fetch)
            try:
                await self.app(scope, receive_within_limits, send)
            finally:
                hold.reset(token)

    @contextmanager
    def _room(self, headers: Mapping[str, str]) -> Iterator[Callable[[int], None]]:
        """What notes that something is at least so many bytes large; it raises a 503 where there is no room."""
        size_so_far = 0

        def grow_to(size: int) -> None:
            nonlocal size_so_far
            if size <= max(size_so_far, KEYLESS_BYTES):
                return
            if self._inflight_bytes + size - size_so_far > self.max_inflight_bytes:
                raise HTTPException(503, _NO_ROOM, {**SHORTLY, **headers})
            self._inflight_bytes += size - size_so_far
            size_so_far = size

        try:
            yield grow_to
        finally:
            self._inflight_bytes -= size_so_far

    async def _limit(self, request: HTTPConnection, most: int) -> int:
        """How much of this body to read. Raises HTTPException when its declared length says enough."""
        headers = request.headers
        signed = self.signed and request.scope["path"].startswith(self.signed)
        has_key, length = signed or has_credentials(headers), _declared_length(request)
        limit = most if has_key else min(most, KEYLESS_BYTES)
        if length is not None and length > limit:
            raise _too_large(limit, keyless=limit < most)
        is_chunked = length is None and "transfer-encoding" in headers
        if has_key and (is_chunked or (length or 0) > KEYLESS_BYTES):
            await self.check(request)
        return limit


class JsonRoute(APIRoute):
    """Takes up to MAX_TEXT_BYTES of JSON."""

    takes_files: ClassVar[bool] = False

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, takes_files = super().get_route_handler(), self.takes_files

        async def read_well(request: Request) -> Response:
            for name, value in request.query_params.multi_items():
                if "\0" in name + value:
                    raise Invalid(["query", name], NUL_MESSAGE, NUL)
            return await handle(_JsonRequest(request, takes_files))

        return read_well


class FilesRoute(JsonRoute):
    """Takes images and videos in it, too, as long strings."""

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
                self._check_kind()
            body += chunk
            if len(body) > MAX_TEXT_BYTES and not self._takes_files:
                raise HTTPException(413, f"Request body too large: at most {MAX_TEXT_BYTES} bytes here", _CLOSE)
            values += sum(map(chunk.count, (b",", b"[", b"{")))
            if values > MAX_VALUES:
                raise Invalid(["body"], f"The body should hold at most {MAX_VALUES} values", "too_many_values")
        return cast(bytes, body)  # a copy would keep all other requests waiting

    def _check_kind(self) -> None:
        """Raises Invalid where the headers say that the body is something else."""
        encoding = self.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            message = f"Bodies are taken as they are, not as {encoding[:20]}"
            raise Invalid(["header", "Content-Encoding"], message, "content_encoding")
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        main, _, sub = kind.partition("/")
        if main != "application" or not (sub == "json" or sub.endswith("+json")):
            problem = f"not {kind[:60]}" if kind else "and it is missing"
            problem += _CURL_HINT if kind == "application/x-www-form-urlencoded" else ""
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


_M_MMAP_THRESHOLD: Final = -3
"""As malloc.h has it."""
_LARGE_BYTES: Final = 128 * 1024


def give_back_large_blocks() -> None:
    """From now on, for this process. Does nothing where the C library is not glibc.

    By itself glibc takes the first large blocks that are freed for a sign that there will be more: it puts blocks of up
    to 32 MiB between small ones, and there the memory stays.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
