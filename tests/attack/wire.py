"""Sends raw HTTP requests, each over its own connection, and checks the responses.

A response must not be a failure. An error must have the documented form, be small, and leak nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from ipaddress import ip_address
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

Address: TypeAlias = tuple[str, int]
JSON: Final = (("Content-Type", "application/json"),)
_MAX_BYTES: Final = 64 * 2**20
"""Bytes of a response that are read."""
_MAX_ERROR_BYTES: Final = 64 * 1024
_LEAKS: Final = re.compile(
    r"Traceback \(most recent|File \\?\"|site-packages|/(?:usr|root|home|tmp|proc|etc|var|opt)/[\w.-]+|\b[\w/]+\.py\b|"
    r"\b(?:serve_app|starlette|uvicorn|pydantic|hiredis|httpx2)\.|rediss?://|0x[0-9a-f]{8,}|<class '|object at"
)
"""Stack traces, paths, names of modules and addresses, which no client may see."""
_NO_HTTP: Final = (
    b"Invalid HTTP request received.",
    b"<html><body><h1>400 Bad request</h1>\nYour browser sent an invalid",
)
_OPENAI: Final = ("/v1/images/", "/v1/videos", "/v1/models")
"""Paths whose errors have another form."""


class NotLocal(ValueError):
    """The service is not on this machine and must not be attacked."""


class NoResponse(Exception):
    """The connection ended, or the time was up, before the end of the response."""


def parse_address(url: str) -> Address:
    """Returns a service's address; raises NotLocal unless it is on this machine's loopback interface."""
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
    with contextlib.suppress(ValueError):
        if parts.scheme == "http" and ip_address(host).is_loopback:
            return host, parts.port or 80
    raise NotLocal(f"{url} is not on this machine: only http:// addresses of the loopback interface are attacked")


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose `target` is written to the request line unchanged."""

    method: str
    target: str
    body: bytes = field(default=b"", repr=False)
    headers: tuple[tuple[str, str], ...] = JSON
    framing: tuple[tuple[str, str], ...] | None = None
    """Headers that frame the body; None for the right Content-Length."""

    def head(self, key: str, address: Address) -> bytes:
        lines = [f"{self.method} {self.target} HTTP/1.1", f"Host: {address[0]}:{address[1]}"]
        lines += [f"x-key: {key}"] if key else []
        framing = (("Content-Length", str(len(self.body))),) if self.framing is None else self.framing
        lines += [f"{name}: {value}" for name, value in (*self.headers, *framing)]
        return "\r\n".join([*lines, "Connection: close", "", ""]).encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class RawResponse:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = field(repr=False)

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


def exchange(address: Address, request: Request, key: str, limit_s: float) -> RawResponse:
    """Sends a request and returns the response. Raises NoResponse."""
    start = time.monotonic()
    try:
        with socket.create_connection(address, timeout=limit_s) as connection:
            # The response can come before the whole request is written.
            threading.Thread(target=_write, args=(connection, request, key, address), daemon=True).start()
            response = HTTPResponse(connection, method=request.method)
            response.begin()
            body = response.read(_MAX_BYTES)
    except TimeoutError:
        raise NoResponse(f"no answer within {limit_s:g} s") from None
    except (OSError, HTTPException) as problem:
        raise NoResponse(f"the connection broke: {type(problem).__name__}") from None
    if time.monotonic() - start > limit_s:
        raise NoResponse(f"no whole answer within {limit_s:g} s")
    return RawResponse(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


def _write(connection: socket.socket, request: Request, key: str, address: Address) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(request.head(key, address) + request.body)
        if request.framing is not None:
            connection.shutdown(socket.SHUT_WR)  # else both sides could wait for the rest of a declared length


def find_problems(
    request: Request, answer: RawResponse, secrets: Collection[str] = (), *, plain_400: bool = False
) -> list[str]:
    """Lists the problems of a response.

    With `plain_400` the request can be invalid HTTP, which proxy or server reject with their own text.
    """
    request_text = request.target + request.body[: 2**20].decode(errors="replace")  # an error may quote it
    problems = [f"another's secret {secret[:12]}…" for secret in secrets if secret in answer.text]
    if answer.status < 400 or (plain_400 and answer.status == 400 and answer.body.startswith(_NO_HTTP)):
        return problems
    # 503 with Retry-After, and 504 to a client that waits for an image, are allowed.
    allowed = {503: "retry-after" in answer.headers, 504: answer.headers.get("x-should-retry") == "false"}
    if answer.status >= 500 and not allowed.get(answer.status):
        problems.append(f"HTTP {answer.status}")
    if not _is_error(answer, openai=request.target.startswith(_OPENAI)):
        problems.append(f"HTTP {answer.status} in another form than that of errors: {answer.text[:80]}")
    if len(answer.body) > _MAX_ERROR_BYTES:
        problems.append(f"an error of {len(answer.body)} bytes")
    leaks = [leak[0] for leak in _LEAKS.finditer(answer.text) if leak[0] not in request_text]
    return problems + [f"an error that leaks {leak!r}" for leak in leaks[:1]]


def _is_error(answer: RawResponse, *, openai: bool) -> bool:
    body: Any = None
    if answer.headers.get("content-type", "").partition(";")[0] == "application/json":
        with contextlib.suppress(ValueError):
            body = json.loads(answer.body)
    if not isinstance(body, dict):
        return False
    if openai:
        return set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    if answer.status == 404 and body.get("status") == "Task not found":
        return True
    detail: Any = body.get("detail")
    well_formed = {"detail", "code"} <= set(body) <= {"detail", "code", "hint", "request_id"}
    return well_formed and (isinstance(detail, str) if answer.status != 422 else all(map(_is_entry, detail)))


def _is_entry(entry: Any) -> bool:
    keys = {"type", "loc", "msg"}
    return keys <= set(entry) <= keys | {"ctx"} and all(isinstance(part, str) for part in entry["loc"])
