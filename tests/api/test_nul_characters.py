"""NUL in a string: stores and programs end strings there, each in its own way, so it is refused wherever it is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.client import ENDPOINT, HOOK, Client, problems
from support.http_service import Service

NUL = "nul_character"
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": "a\0cat"}, ["prompt"]),
        ({"prompt": "\0"}, ["prompt"]),
        ({"prompt": "long " * 10_000 + "\0"}, ["prompt"]),
        ({"images": ["AAAA", "AA\0A"]}, ["images", "1"]),
        ({"images": ["A" * 100_000 + "\0"]}, ["images", "0"]),
        ({"user": "me\0"}, ["user"]),
        ({"webhook_url": HOOK + "/\0"}, ["webhook_url"]),
        ({"webhook_secret": "x\0"}, ["webhook_secret"]),
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
    with service.unchanged():
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
    with service.unchanged():
        for who, path, body, loc in requests:
            assert problems(who.post(path, json=body)) == [(loc, NUL)]


def test_names_in_the_query_are_held_to_it_too(client: Client, service: Service) -> None:
    with service.unchanged():
        response = client.post("/v1/finetunes", params={"name": "a\0b", "base": "gen-2-pro"}, content=b"x")
    assert problems(response) == [(["query", "name"], NUL)]
