"""Responses to HTTP/1.0 clients: unchunked content that ends with the connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from support.http_service import serving
from uvicorn.protocols.http import httptools_impl

from serve_app.api import http_1_0


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    streamed = StreamingResponse(iter(["event: status\n\n", "event: end\n\n"]), media_type="text/event-stream")
    answers: dict[str, Response] = {
        "/stream": streamed,
        "/whole": PlainTextResponse("hello"),
        "/none": Response(status_code=304),
    }
    await answers[scope["path"]](scope, receive, send)


@pytest.fixture
def base_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(httptools_impl, "RequestResponseCycle", httptools_impl.RequestResponseCycle)
    http_1_0.install()
    with serving(app) as base_url:
        yield base_url


def ask(base_url: str, request: str) -> tuple[str, str]:
    """Returns head and body of the answer, up to the end of the connection."""
    host, _, port = base_url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(f"{request}\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        with connection.makefile(newline="") as answer:
            head, _, body = answer.read().partition("\r\n\r\n")
    return head.lower(), body


@pytest.mark.parametrize(
    ("request_line", "body"),
    [
        ("GET /stream HTTP/1.0", "event: status\n\nevent: end\n\n"),
        ("HEAD /stream HTTP/1.0", ""),
        ("GET /whole HTTP/1.0", "hello"),
        ("GET /none HTTP/1.0", ""),
    ],
)
def test_http_1_0_gets_no_chunks(base_url: str, request_line: str, body: str) -> None:
    head, received = ask(base_url, request_line)
    assert received == body
    assert "transfer-encoding" not in head
    assert "connection: close" in head


def test_http_1_1_streams_stay_chunked(base_url: str) -> None:
    head, received = ask(base_url, "GET /stream HTTP/1.1")
    assert "transfer-encoding: chunked" in head
    assert received.endswith("\r\n0\r\n\r\n")
