"""What one body can ask of those who read it."""

from __future__ import annotations

import gzip

import pytest
from support.client import Client, problems, refusal
from support.descriptions import described_paths
from support.http_service import Service
from support.openai_calls import OPENAI, error
from support.pictures import encoded, picture
from support.promises import promise

from serve_app.api.bodies import KEYLESS_BYTES, MAX_TEXT_BYTES
from serve_app.api.routes.oauth import PATHS

ENDPOINT = "/v1/gen-3-image-klein"
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
    with service.unchanged():
        response = client.post(path, content=body, headers=JSON)
    assert problems(response) == [(["body"], "too_many_values")]
    assert "at most 50000 values" in response.json()["detail"][0]["msg"]
    assert len(response.content) < 300


def test_a_body_that_is_nested_deep(client: Client) -> None:
    response = client.post(ENDPOINT, content=b'{"prompt": ' * 5000, headers=JSON)
    assert problems(response) == [(["body"], "json_invalid")]


def test_many_problems_are_counted_not_listed(client: Client) -> None:
    response = client.post(ENDPOINT, json={"prompt": "x"} | {f"k{n}": n for n in range(1000)})
    found = problems(response)
    assert [kind for _, kind in found] == ["extra_forbidden"] * 20 + ["too_many_errors"]
    assert response.json()["detail"][-1]["msg"] == "There are 980 more problems"
    assert len(response.content) < SMALL_ANSWER


def test_long_names_are_cut(client: Client) -> None:
    response = client.post(ENDPOINT, json={"prompt": "x"} | {f"{n}{'k' * 4000}": n for n in range(30)})
    assert response.status_code == 422
    assert len(response.content) < SMALL_ANSWER


def test_text_alone_is_small(operator: Client) -> None:
    body = {"name": "x" * (MAX_TEXT_BYTES + 1)}
    told = refusal(operator.post("/v1/admin/organizations", json=body), 413)
    assert told == "Request body too large: at most 262144 bytes here"


def test_pictures_account_for_the_rest(client: Client) -> None:
    images = [encoded(picture(500, 400).ljust(size, b"\0")) for size in (3000, 100_000, 150_000, 190_000, 3_000_000)]
    client.accepted(images=images)


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
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    sent = client.post(path, content=b"x=".ljust(KEYLESS_BYTES + 1, b"x"), headers=JSON if "register" in path else form)
    told = refusal(sent, 413)
    assert told == "Request body too large: at most 65536 bytes"
