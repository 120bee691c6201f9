"""Limits of request bodies: size, number of values, time, NUL characters."""

from __future__ import annotations

import gzip
import json
import socket
from typing import Any

import httpx2
import pytest
from support.http_client import ENDPOINT, HOOK, Client, problems, refusal
from support.http_service import Service, StartService, described_paths
from support.images import image_file, to_base64
from support.openai_client import OPENAI, error
from support.promises import promise

from serve_app.api.bodies import KEYLESS_BYTES, MAX_TEXT_BYTES
from serve_app.api.routes.oauth import PATHS
from serve_app.config.settings import ServiceSettings

JSON = {"Content-Type": "application/json"}
SMALL_ANSWER = 16 * 1024


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt":"x"' + b"".join(b',"k%d":0' % n for n in range(50_000)) + b"}",
        b'{"prompt":"x","images":[' + b"[]," * 7_000_000 + b"[]]}",
        b"[" * 100_000,
    ],
    ids=["keys", "lists", "depth"],
)
def test_body_of_many_values_is_rejected(client: Client, service: Service, body: bytes) -> None:
    with service.assert_unchanged():
        response = client.post(ENDPOINT, content=body, headers=JSON)
    assert problems(response) == [(["body"], "too_many_values")]
    assert "at most 50000 values" in response.json()["detail"][0]["msg"]
    assert len(response.content) < 300


@pytest.mark.parametrize("name", ["k", "k" * 4000])
def test_at_most_twenty_problems_are_listed(client: Client, name: str) -> None:
    response = client.post(ENDPOINT, json={"prompt": "x"} | {f"{n}{name}": n for n in range(30)})
    assert [kind for _, kind in problems(response)] == ["extra_forbidden"] * 20 + ["too_many_errors"]
    assert response.json()["detail"][-1]["msg"] == "There are 10 more problems"
    assert len(response.content) < SMALL_ANSWER


def test_body_without_images_is_small(operator: Client) -> None:
    body = {"name": "x" * (MAX_TEXT_BYTES + 1)}
    detail = refusal(operator.post("/v1/admin/organizations", json=body), 413)
    assert detail == "Request body too large: at most 262144 bytes here"


def test_images_may_make_a_body_large(client: Client) -> None:
    images = [
        to_base64(image_file(500, 400).ljust(size, b"\0")) for size in (3000, 100_000, 150_000, 190_000, 3_000_000)
    ]
    client.create_task(images=images)


@promise("What the service does", "Request and response bodies are JSON (`Content-Type: application/json`).")
def test_compressed_body_is_rejected(client: Client) -> None:
    body = gzip.compress(b'{"prompt": "x"}')
    response = client.post(ENDPOINT, content=body, headers=JSON | {"Content-Encoding": "gzip"})
    assert problems(response) == [(["header", "Content-Encoding"], "content_encoding")]
    assert "not as gzip" in response.json()["detail"][0]["msg"]
    plain = client.post(ENDPOINT, content=b'{"prompt": "x"}', headers=JSON | {"Content-Encoding": "identity"})
    assert plain.status_code == 200


def test_every_route_limits_the_values_of_a_body(service: Service, operator: Client) -> None:
    routes = [
        (method, path.replace("{", "").replace("}", ""))
        for path, operations in described_paths(service.app).items()
        for method, operation in operations.items()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    ]
    assert len(routes) > 30
    for method, path in routes:
        response = operator.request(method, path, content=b"[" * 60_000, headers=JSON)
        if path.startswith(OPENAI):
            assert "50000 values" in error(response, 400)["message"], path
        else:
            assert problems(response) == [(["body"], "too_many_values")], path


@pytest.mark.parametrize("path", sorted(PATHS - {"/oauth/authorize"}))  # its errors are redirects
def test_bodies_of_oauth_routes_are_small(client: Client, path: str) -> None:
    kind = "application/json" if "register" in path else "application/x-www-form-urlencoded"
    content = b"x=".ljust(KEYLESS_BYTES + 1, b"x")
    refusal(client.post(path, content=content, headers={"Content-Type": kind}), 413)


MB = 2**20


def test_body_that_never_arrives_times_out(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(max_body_s=0.2))
    with service.client() as client:
        response = converse(service, head(client.secret, "Content-Length: 1000"))
    assert "too slowly" in refusal(response, 408)


def converse(service: Service, request: bytes) -> httpx2.Response:
    """Sends exactly these bytes and reads until the service closes the connection. Returns the response."""
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


def pad_body(size: int) -> bytes:
    """Returns a request of `size` bytes, most of which are an image's."""
    start, end = b'{"prompt": "a cat", "images": ["', b'"]}'
    room = (size - len(start) - len(end)) // 4 * 3
    return (start + to_base64(image_file().ljust(room, b"\0")).encode() + end).ljust(size)


def test_body_is_rejected_once_it_is_too_large(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(max_body_mb=1))
    with service.client() as client:
        assert client.post(ENDPOINT, content=pad_body(MB), headers=JSON).status_code == 200
        declared = head(client.secret, f"Content-Length: {MB + 1}")
        growing = head(client.secret, "Transfer-Encoding: chunked")
    # Without a last chunk, there is an answer only if the service does not wait for the rest.
    chunks = b'1\r\n"\r\n' + (b"10000\r\n" + b"A" * 0x10000 + b"\r\n") * 16
    for request in (declared, growing + chunks):
        message = f"Request body too large: at most {MB} bytes; larger files go by POST /v1/uploads"
        assert refusal(converse(service, request), 413) == message


@pytest.mark.parametrize("framing", ["Content-Length: 65537", "Transfer-Encoding: chunked"])
def test_bodies_without_a_valid_key_are_small(service: Service, framing: str) -> None:
    chunks = b"10000\r\n" + b" " * 0x10000 + b"\r\n1\r\n \r\n" if "chunked" in framing else b""
    for key in (None, ""):
        response = converse(service, head(key, framing) + chunks)
        assert refusal(response, 413) == "Request body too large: at most 65536 bytes without an x-key header"
    response = converse(service, head("gen_nobody", framing, "Connection: close"))
    assert refusal(response, 403) == "Not authenticated - Invalid Authentication"


NUL = "nul_character"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": "a\0cat"}, ["prompt"]),
        ({"prompt": "long " * 10_000 + "\0"}, ["prompt"]),
        ({"images": ["AAAA", "AA\0A"]}, ["images", "1"]),
        ({"webhook_url": HOOK + "/\0"}, ["webhook_url"]),
        ({"output_format": "png\0"}, ["output_format"]),
        ({"more": {"deep": ["\0"]}}, ["more", "deep", "0"]),
        ({"pro\0mpt": "x"}, []),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
@pytest.mark.parametrize("escaped", [True, False])
def test_nul_is_rejected_at_its_field(
    client: Client, service: Service, body: dict[str, Any], field: list[str], escaped: bool
) -> None:
    content = json.dumps({"prompt": "a cat"} | body)
    if not escaped:
        content = content.replace(r"\u0000", "\0")
    with service.assert_unchanged():
        (problem,) = problems(client.post("/v1/gen-2-pro", content=content.encode(), headers=JSON))
    # A raw NUL is invalid JSON in a short string and invalid base64 in a very long one.
    expected = (["body", *field], NUL)
    assert problem == expected or (not escaped and problem[1] == "json_invalid")


def test_nul_is_rejected_in_other_routes(operator: Client, client: Client, service: Service) -> None:
    requests = [
        (client, "/v1/pricing", {"path": ENDPOINT, "body": {"prompt": "a\0cat"}}, ["body", "body", "prompt"]),
        (operator, "/v1/admin/organizations", {"id": "acme", "name": "a\0b"}, ["body", "name"]),
        (operator, "/v1/admin/keys", {"name": "a\0b"}, ["body", "name"]),
    ]
    with service.assert_unchanged():
        for who, path, body, loc in requests:
            assert problems(who.post(path, json=body)) == [(loc, NUL)]
        response = client.post("/v1/finetunes", params={"name": "a\0b", "base": "gen-2-pro"}, content=b"x")
        assert problems(response) == [(["query", "name"], NUL)]
