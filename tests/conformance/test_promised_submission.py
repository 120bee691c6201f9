"""Responses to submissions, and idempotency keys."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from server_under_test import (
    ENDPOINTS,
    KLEIN,
    SUBMITTED,
    ServerUnderTest,
    error_detail,
    is_number,
    minimal_body,
    problems,
    same_origin,
)
from support.promises import promise

_decided = partial(promise, "Decided: submission")
_response = partial(promise, "Task submission response")
_service = partial(promise, "What the service does")
_ANSWER: Final = "Response: `id`, `polling_url`, `cost`, `input_mp`, `output_mp`."
_AMOUNTS: Final = ("cost", "input_mp", "output_mp")
_PARALLEL: Final = 5


@promise(
    "Endpoints",
    "Every generation endpoint answers with a task submission response on success (HTTP 200) and the validation error "
    "body on HTTP 422.",
)
@_response("`cost`: number or null: on endpoints whose response lists it: Cost in credits for this request")
@_response("`input_mp`: number or null: same: Input megapixels, 2 decimal places")
@_response("`output_mp`: number or null: same: Output megapixels, 2 decimal places")
@_decided("always present as keys.")
@_decided(
    'Numbers on endpoints whose response lists them; `null` on those marked "`id`, `polling_url` only" and on video.'
)
@pytest.mark.parametrize(
    "endpoint",
    [
        pytest.param(name, marks=promise(ENDPOINTS[name]["section"], ENDPOINTS[name].get("answers", _ANSWER)), id=name)
        for name in SUBMITTED
    ],
)
def test_submission_response_has_the_documented_fields(server: ServerUnderTest, endpoint: str) -> None:
    reply = server.create_task(endpoint)
    assert set(reply) == {"id", "polling_url", *_AMOUNTS}
    amounts = [reply[name] for name in _AMOUNTS]
    if ENDPOINTS[endpoint].get("figures", True):
        assert all(is_number(each) and round(each, 2) == each for each in amounts[1:])
        assert is_number(amounts[0])
    else:
        assert amounts == [None] * 3


@_service("The service answers at once with a task identifier and a polling address.")
@_response("`id`: string: always: Task identifier")
@_response("`polling_url`: string: always: Address to poll for the result")
@_decided("UUIDv4 string")
@_decided("absolute, `{public_base}/v1/get_result?id=<id>`")
@_decided("Same origin as the client used")
def test_task_has_an_id_and_polling_url(server: ServerUnderTest) -> None:
    reply, other = server.create_task(KLEIN), server.create_task(KLEIN)
    assert reply["id"] != other["id"]
    assert str(UUID(reply["id"], version=4)) == reply["id"]
    url = urlsplit(reply["polling_url"])
    assert same_origin(reply["polling_url"], server.base_url), "is another public URL configured?"
    assert url.path.endswith("/v1/get_result")
    assert parse_qs(url.query)["id"] == [reply["id"]]
    assert server.get(reply["polling_url"]).json()["id"] == reply["id"]


@_service("Request and response bodies are JSON (`Content-Type: application/json`).")
def test_bodies_are_json(server: ServerUnderTest) -> None:
    refused = server.post(f"/v1/{KLEIN}", content=b"{ no JSON", headers={"content-type": "application/json"})
    assert refused.status_code == 422
    for response in (refused, server.submit(KLEIN, minimal_body(KLEIN))):
        assert response.headers["content-type"].startswith("application/json")


@_decided("1 MP = 1,048,576 px, rounded to 2 decimals")
def test_megapixel_has_1048576_pixels(server: ServerUnderTest) -> None:
    assert server.create_task(KLEIN, {"width": 1280, "height": 720})["output_mp"] == round(1280 * 720 / 2**20, 2)


@pytest.mark.needs("hook")
@_decided('the same body plus `status: "Pending"` and `webhook_url` (valid against both variants)')
@_decided('the same body plus `status: "Pending"` and `webhook_url`')
@pytest.mark.parametrize("endpoint", SUBMITTED)
def test_webhook_adds_status_and_url_to_response(server: ServerUnderTest, endpoint: str) -> None:
    hook = server.new_hook()
    reply = server.create_task(endpoint, {"webhook_url": hook})
    assert set(reply) == {"id", "polling_url", *_AMOUNTS, "status", "webhook_url"}
    assert (reply["status"], reply["webhook_url"]) == ("Pending", hook)


@_decided('404 `{"detail": "Not Found"}`')
@pytest.mark.parametrize("path", ["/v1/gen-of-no-model", "/v1/gen-tools/no-tool-v1"])
def test_unknown_endpoint_is_404(server: ServerUnderTest, path: str) -> None:
    assert error_detail(server.post(path, {"prompt": "x"}), 404).startswith("Not Found")


# Idempotency keys


def _new_key() -> dict[str, str]:
    return {"Idempotency-Key": f"conformance-{secrets.token_hex(8)}"}


@_decided("Same key and same body within 24 h: the first response again, one task.")
@_decided("Same key, other body: 422.")
@_decided("`Idempotency-Key` header: optional.")
def test_idempotency_key_returns_the_first_response(server: ServerUnderTest) -> None:
    key = _new_key()
    first = server.create_task(KLEIN, headers=key)
    assert server.create_task(KLEIN, headers=key) == first
    problems(server.submit(KLEIN, minimal_body(KLEIN) | {"prompt": "a blue circle"}, headers=key))
    assert server.create_task(KLEIN, headers=_new_key())["id"] != first["id"]


@_decided("N parallel submits with one key make one task")
@promise("Decided: errors", "409: an idempotency key whose first request is still being handled")
def test_parallel_submissions_with_one_key_make_one_task(server: ServerUnderTest) -> None:
    key = _new_key()
    with ThreadPoolExecutor(_PARALLEL) as threads:
        futures = [threads.submit(server.submit, KLEIN, minimal_body(KLEIN), headers=key) for _ in range(_PARALLEL)]
    responses = [each.result() for each in futures]
    assert all(each.status_code in (200, 409) for each in responses)
    assert len({each.json()["id"] for each in responses if each.status_code == 200}) == 1
    assert all("retry-after" in each.headers for each in responses if each.status_code == 409)
