"""A request byte for byte as it is written, over a connection of its own, and the answer to it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from ipaddress import ip_address
from typing import Final, TypeAlias
from urllib.parse import urlsplit

Address: TypeAlias = tuple[str, int]
JSON: Final = (("Content-Type", "application/json"),)
_MOST_BYTES: Final = 64 * 2**20
"""Of an answer; the rest is not read."""


class NotOurs(ValueError):
    """A service that must not be attacked from here."""


class NoAnswer(Exception):
    """The connection ended, or time was up, before there was a whole answer."""


def address_of(url: str) -> Address:
    """Where a service listens. Raises NotOurs unless that is an address of this machine's loopback interface."""
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
    with contextlib.suppress(ValueError):
        if parts.scheme == "http" and ip_address(host).is_loopback:
            return host, parts.port or 80
    raise NotOurs(f"{url} is not on this machine: only http:// addresses of the loopback interface are attacked")


@dataclass(frozen=True, slots=True)
class Request:
    """`target` stands on the request line as it is; `key` is sent as `x-key` unless it is empty."""

    method: str
    target: str
    body: bytes = field(default=b"", repr=False)
    headers: tuple[tuple[str, str], ...] = JSON
    framing: tuple[tuple[str, str], ...] | None = None
    """Headers that tell where the body ends; None for a Content-Length that tells the truth."""

    def head(self, key: str, address: Address) -> bytes:
        lines = [f"{self.method} {self.target} HTTP/1.1", f"Host: {address[0]}:{address[1]}"]
        lines += [f"x-key: {key}"] if key else []
        framing = (("Content-Length", str(len(self.body))),) if self.framing is None else self.framing
        lines += [f"{name}: {value}" for name, value in (*self.headers, *framing)]
        return "\r\n".join([*lines, "Connection: close", "", ""]).encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = field(repr=False)

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


def exchange(address: Address, request: Request, key: str, limit_s: float) -> Answer:
    """The answer to the request. Raises NoAnswer."""
    began = time.monotonic()
    try:
        with socket.create_connection(address, timeout=limit_s) as connection:
            # An answer may come before all is written; writing is over then.
            threading.Thread(target=_write, args=(connection, request, key, address), daemon=True).start()
            response = HTTPResponse(connection, method=request.method)
            response.begin()
            body = response.read(_MOST_BYTES)
    except TimeoutError:
        raise NoAnswer(f"no answer within {limit_s:g} s") from None
    except (OSError, HTTPException) as problem:
        raise NoAnswer(f"the connection broke: {type(problem).__name__}") from None
    if time.monotonic() - began > limit_s:
        raise NoAnswer(f"no whole answer within {limit_s:g} s")
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


def _write(connection: socket.socket, request: Request, key: str, address: Address) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(request.head(key, address) + request.body)
        if request.framing is not None:
            connection.shutdown(socket.SHUT_WR)  # else both sides would wait for what was declared and never comes
