"""Routes that take JSON, and how a body becomes what they take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Final

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

from serve_app.http.json_body import MAX_TEXT_BYTES, NUL, NUL_REFUSED, BadBody, JsonBody, TextTooLarge
from serve_app.submission.errors import Invalid

_CLOSE: Final = {"Connection": "close"}
"""What is left of the body stays unread, so the connection can't be used again."""

_OF_CURL: Final = ", which curl -d sends by itself: add -H 'Content-Type: application/json', or use --json"


class JsonRoute(APIRoute):
    """Takes up to `MAX_TEXT_BYTES` of JSON, within the bounds of `JsonBody`."""

    takes_files: ClassVar[bool] = False

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, takes_files = super().get_route_handler(), self.takes_files

        async def read_well(request: Request) -> Response:
            for name, value in request.query_params.multi_items():
                if "\0" in name + value:
                    raise Invalid(["query", name], NUL_REFUSED, NUL)
            return await handle(_JsonRequest(request, takes_files))

        return read_well


class FilesRoute(JsonRoute):
    """Takes pictures and videos in it, too, as long strings."""

    takes_files = True


class _JsonRequest(Request):
    def __init__(self, request: Request, takes_files: bool) -> None:
        super().__init__(request.scope, request.receive)
        self._takes_files = takes_files
        self._read: JsonBody | None = None

    async def body(self) -> bytes:
        """The text of the body without its long strings; FastAPI asks only whether there is any."""
        if self._read is None:
            self._read = await self._received()
        return self._read.text

    async def json(self) -> Any:
        await self.body()
        assert self._read is not None
        try:
            return await asyncio.to_thread(self._read.value) if self._read.is_large else self._read.value()
        except BadBody as problem:
            raise _invalid(problem) from None

    async def _received(self) -> JsonBody:
        body, size = JsonBody(), 0
        try:
            async for chunk in self.stream():
                if not size and chunk:
                    self._check_kind()
                size += len(chunk)
                if size > MAX_TEXT_BYTES and not self._takes_files:
                    raise TextTooLarge
                body.feed(chunk)
        except BadBody as problem:
            raise _invalid(problem) from None
        except TextTooLarge:
            but = ", pictures and videos not counted" if self._takes_files else ""
            message = f"Request body too large: at most {MAX_TEXT_BYTES} bytes here{but}"
            raise HTTPException(413, message, _CLOSE) from None
        return body

    def _check_kind(self) -> None:
        """Raises Invalid where the headers say that the body is something else."""
        encoding = self.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            message = f"Bodies are taken as they are, not as {encoding[:20]}"
            raise Invalid(["header", "Content-Encoding"], message, "content_encoding")
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        main, _, sub = kind.partition("/")
        if main != "application" or not (sub == "json" or sub.endswith("+json")):
            sent = f"not {kind[:60]}" if kind else "and it is missing"
            sent += _OF_CURL if kind == "application/x-www-form-urlencoded" else ""
            raise Invalid(
                ["header", "Content-Type"], f"Content-Type should be application/json, {sent}", "content_type"
            )


def _invalid(problem: BadBody) -> Invalid:
    return Invalid(["body", *problem.loc], str(problem), problem.kind)
