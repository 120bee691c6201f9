"""What one body can ask of those who read it."""

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
        b'{"prompt":"x"' + b"".join(b',"k%d":0' % n for n in range(300_000)) + b"}",
        b'{"prompt":"x","images":[' + b"[]," * 7_000_000 + b"[]]}",
        b"[" * 100_000,
    ],
    ids=["keys", "lists", "depth"],
)
@pytest.mark.parametrize("path", [ENDPOINT, "/v1/pricing"])
def test_bodies_of_many_values(client: Client, service: Service, path: str, body: bytes) -> None:
    with service.assert_unchanged():
        response = client.post(path, content=body, headers=JSON)
    assert problems(response) == [(["body"], "too_many_values")]
    assert "at most 50000 values" in response.json()["detail"][0]["msg"]
    assert len(response.content) < 300


@pytest.mark.parametrize("name", ["k", "k" * 4000])
def test_many_problems_are_counted_not_listed(client: Client, name: str) -> None:
    response = client.post(ENDPOINT, json={"prompt": "x"} | {f"{n}{name}": n for n in range(30)})
    assert [kind for _, kind in problems(response)] == ["extra_forbidden"] * 20 + ["too_many_errors"]
    assert response.json()["detail"][-1]["msg"] == "There are 10 more problems"
    assert len(response.content) < SMALL_ANSWER


def test_text_alone_is_small(operator: Client) -> None:
    body = {"name": "x" * (MAX_TEXT_BYTES + 1)}
    detail = refusal(operator.post("/v1/admin/organizations", json=body), 413)
    assert detail == "Request body too large: at most 262144 bytes here"


def test_images_account_for_the_rest(client: Client) -> None:
    images = [
        to_base64(image_file(500, 400).ljust(size, b"\0")) for size in (3000, 100_000, 150_000, 190_000, 3_000_000)
    ]
    client.create_task(images=images)


@promise("What the service does", "Request and response bodies are JSON (`Content-Type: application/json`).")
def test_compressed_bodies_are_told_so(client: Client) -> None:
    body = gzip.compress(b'{"prompt": "x"}')
    response = client.post(ENDPOINT, content=body, headers=JSON | {"Content-Encoding": "gzip"})
    assert problems(response) == [(["header", "Content-Encoding"], "content_encoding")]
    assert "not as gzip" in response.json()["detail"][0]["msg"]
    plain = client.post(ENDPOINT, content=b'{"prompt": "x"}', headers=JSON | {"Content-Encoding": "identity"})
    assert plain.status_code == 200


def test_every_body_is_read_with_these_bounds(service: Service, operator: Client) -> None:
    taking = [
        (method, path.replace("{", "").replace("}", ""))
        for path, operations in described_paths(service.app).items()
        for method, operation in operations.items()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    ]
    assert len(taking) > 30
    for method, path in taking:
        response = operator.request(method, path, content=b"[" * 60_000, headers=JSON)
        if path.startswith(OPENAI):
            assert "50000 values" in error(response, 400)["message"], path
        else:
            assert problems(response) == [(["body"], "too_many_values")], path


@pytest.mark.parametrize("path", sorted(PATHS - {"/oauth/authorize"}))  # which has an answer of its own to errors
def test_programs_have_nothing_large_to_say(client: Client, path: str) -> None:
    kind = "application/json" if "register" in path else "application/x-www-form-urlencoded"
    content = b"x=".ljust(KEYLESS_BYTES + 1, b"x")
    refusal(client.post(path, content=content, headers={"Content-Type": kind}), 413)


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


def pad_body(size: int) -> bytes:
    """A request of `size` bytes, most of which are an image's."""
    start, end = b'{"prompt": "a cat", "images": ["', b'"]}'
    room = (size - len(start) - len(end)) // 4 * 3
    return (start + to_base64(image_file().ljust(room, b"\0")).encode() + end).ljust(size)


def test_a_body_is_refused_as_soon_as_it_is_too_large(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(max_body_mb=1))
    with service.client() as client:
        assert client.post(ENDPOINT, content=pad_body(MB), headers=JSON).status_code == 200
        declared = head(client.secret, f"Content-Length: {MB + 1}")
        growing = head(client.secret, "Transfer-Encoding: chunked")
    # More than the limit, and no last chunk: an answer comes only if the service does not wait for the rest.
    chunks = b'1\r\n"\r\n' + (b"10000\r\n" + b"A" * 0x10000 + b"\r\n") * 16
    for request in (declared, growing + chunks):
        message = f"Request body too large: at most {MB} bytes; larger files go by POST /v1/uploads"
        assert refusal(converse(service, request), 413) == message


def test_large_bodies_at_a_time_are_taken_while_there_is_room(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(max_body_mb=1, max_inflight_mb=1))
    body = pad_body(MB)
    with service.client() as client, socket.create_connection(service.address) as wire:
        wire.sendall(head(client.secret, f"Content-Length: {MB}", "Expect: 100-continue"))
        assert b"100 Continue" in wire.recv(65536), "it is about to be read"
        with service.assert_unchanged():
            response = client.post(ENDPOINT, content=body, headers=JSON)
        assert "nothing was accepted or charged" in refusal(response, 503)
        assert int(response.headers["retry-after"]) >= 1
        client.create_task()
        wire.sendall(body)
        assert wire.recv(65536).startswith(b"HTTP/1.1 200")
        assert client.post(ENDPOINT, content=body, headers=JSON).status_code == 200


@pytest.mark.parametrize("framing", ["Content-Length: 65537", "Transfer-Encoding: chunked"])
def test_without_a_good_key_bodies_are_small(service: Service, framing: str) -> None:
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
@pytest.mark.parametrize("endpoint", [ENDPOINT, "/v1/gen-2-pro"])
@pytest.mark.parametrize("escaped", [True, False])
def test_a_nul_is_refused_at_its_field(
    client: Client, service: Service, endpoint: str, body: dict[str, Any], field: list[str], escaped: bool
) -> None:
    content = json.dumps({"prompt": "a cat"} | body)
    if not escaped:
        content = content.replace(r"\u0000", "\0")
    with service.assert_unchanged():
        (problem,) = problems(client.post(endpoint, content=content.encode(), headers=JSON))
    # Raw, it is no JSON where the string is short enough to be read as such, or no base64 where it is very long.
    expected = (["body", *field], NUL)
    assert problem == expected or (not escaped and problem[1] == "json_invalid")


def test_other_bodies_are_held_to_it_too(operator: Client, client: Client, service: Service) -> None:
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
