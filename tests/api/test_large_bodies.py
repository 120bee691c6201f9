"""Bodies that are too large, too slow or too many at a time, byte by byte."""

from __future__ import annotations

import socket

import httpx2
import pytest
from support.client import ENDPOINT, refusal
from support.http_service import Service, StartService
from support.pictures import encoded, picture

from serve_app.config.settings import ServiceSettings

JSON = {"Content-Type": "application/json"}
MB = 2**20


def test_a_body_that_never_comes(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(max_body_s=0.2))
    with service.client() as client:
        response = converse(service, head(client.secret, "Content-Length: 1000"))
    assert "too slowly" in refusal(response, 408)


def converse(service: Service, request: bytes) -> httpx2.Response:
    """Sends exactly these bytes, then reads to the end: the service must answer and close by itself."""
    with socket.create_connection(service.address) as wire:
        wire.sendall(request)
        raw = b"".join(iter(lambda: wire.recv(65536), b""))
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]
    return httpx2.Response(int(lines[0].split()[1]), headers=headers, content=body)


def head(key: str | None, *headers: str) -> bytes:
    lines = [f"POST {ENDPOINT} HTTP/1.1", "Host: localhost", *JSON_LINES, *headers]
    return "\r\n".join([*lines, *([] if key is None else [f"x-key: {key}"]), "", ""]).encode()


JSON_LINES = [f"{name}: {value}" for name, value in JSON.items()]


def padded(size: int) -> bytes:
    """A request of `size` bytes, most of which are a picture's."""
    start, end = b'{"prompt": "a cat", "images": ["', b'"]}'
    room = (size - len(start) - len(end)) // 4 * 3
    return (start + encoded(picture().ljust(room, b"\0")).encode() + end).ljust(size)


@pytest.fixture
def small_service(start_service: StartService) -> Service:
    return start_service(service=ServiceSettings(max_body_mb=1))


def test_a_body_that_is_declared_too_large_is_refused_unread(small_service: Service) -> None:
    with small_service.client() as client:
        request = head(client.secret, f"Content-Length: {MB + 1}")
    assert refusal(converse(small_service, request), 413) == f"Request body too large: at most {MB} bytes"


def test_a_body_that_grows_too_large_is_refused_before_its_end(small_service: Service) -> None:
    with small_service.client() as client:
        request = head(client.secret, "Transfer-Encoding: chunked")
    # More than the limit, and no last chunk: an answer comes only if the service does not wait for the rest.
    start, chunk = b'1\r\n"\r\n', b"10000\r\n" + b"A" * 0x10000 + b"\r\n"
    response = converse(small_service, request + start + chunk * 16)
    assert refusal(response, 413) == f"Request body too large: at most {MB} bytes"


def test_a_body_of_just_the_limit_is_taken(small_service: Service) -> None:
    body = padded(MB)
    with small_service.client() as client:
        assert client.post(ENDPOINT, content=body, headers=JSON).status_code == 200


def test_large_bodies_at_a_time_are_taken_while_there_is_room(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(max_body_mb=1, max_inflight_mb=1))
    body = padded(MB)
    with service.client() as client, socket.create_connection(service.address) as wire:
        wire.sendall(head(client.secret, f"Content-Length: {MB}", "Expect: 100-continue"))
        assert b"100 Continue" in wire.recv(65536), "it is about to be read"
        with service.unchanged():
            response = client.post(ENDPOINT, content=body, headers=JSON)
        assert "nothing was accepted or charged" in refusal(response, 503)
        assert int(response.headers["retry-after"]) >= 1
        client.accepted()
        wire.sendall(body)
        assert wire.recv(65536).startswith(b"HTTP/1.1 200")
        assert client.post(ENDPOINT, content=body, headers=JSON).status_code == 200


@pytest.mark.parametrize("key", [None, ""])
@pytest.mark.parametrize("framing", ["Content-Length: 65537", "Transfer-Encoding: chunked"])
def test_without_a_key_bodies_are_small(service: Service, key: str | None, framing: str) -> None:
    chunks = b"10000\r\n" + b" " * 0x10000 + b"\r\n1\r\n \r\n" if "chunked" in framing else b""
    response = converse(service, head(key, framing) + chunks)
    assert refusal(response, 413) == "Request body too large: at most 65536 bytes without an x-key header"


@pytest.mark.parametrize("framing", ["Content-Length: 65537", "Transfer-Encoding: chunked"])
def test_with_a_wrong_key_large_bodies_are_not_read(service: Service, framing: str) -> None:
    response = converse(service, head("gen_nobody", framing, "Connection: close"))
    assert refusal(response, 403) == "Not authenticated - Invalid Authentication"
