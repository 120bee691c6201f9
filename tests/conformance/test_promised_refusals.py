"""Authentication, and the form of errors."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest
from sent_images import cut_out, make_truncated, photo
from server_under_test import (
    KLEIN,
    NO_FINETUNE,
    SUBMITTED,
    VIDEO,
    ServerUnderTest,
    error_detail,
    minimal_body,
    problems,
)
from support.promises import promise

_body = partial(promise, "Validation error body (HTTP 422)")
_decided = partial(promise, "Decided: errors")
_money = partial(promise, "Decided: money, accounts")
_WRONG: Final = "gen_conformance-no-such-key"
_TOKEN: Final = "Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJub2JvZHkifQ.c2lnbmF0dXJl"
_MANY: Final = 40
"""More active tasks than most projects may have."""
_SECRET_VALUE: Final = "a-secret-that-is-never-shown"


@promise("Authentication", "Every endpoint is secured by an API key sent in the request header `x-key`.")
@promise("Endpoints", "All endpoints require the header `x-key` (see Authentication).")
@promise("14. Model usage", "Header: `x-key`.")
@_decided('403 `{"detail": "Not authenticated"}` when `x-key` is missing')
@_decided('403 `"Not authenticated - Invalid Authentication"` when it is wrong, revoked or expired')
@pytest.mark.parametrize("path", [*SUBMITTED, VIDEO, "licenses/models/any/usage"])
def test_endpoints_need_a_key(server: ServerUnderTest, path: str) -> None:
    assert error_detail(server.post(f"/v1/{path}", {}, key=""), 403) == "Not authenticated"
    assert error_detail(server.post(f"/v1/{path}", {}, key=_WRONG), 403) == "Not authenticated - Invalid Authentication"


@_money("Keys: `gen_<random>`")
@_money("accept `Authorization: Bearer <JWT>` from configured issuers (JWKS)")
def test_unknown_token_is_rejected(server: ServerUnderTest) -> None:
    assert server.key.startswith("gen_")
    response = server.post(f"/v1/{KLEIN}", minimal_body(KLEIN), key="", headers={"Authorization": _TOKEN})
    assert response.status_code in (401, 403)


@_body("`detail`: array of objects: One entry per problem")
@_body("`detail[].msg`: string: Message")
@_body("`detail[].type`: string: Error type")
@_body("`detail[].loc`: array of strings: Location of the faulty field")
@_decided("`detail[]` of `{type, loc, msg}` (`loc` array of strings")
@promise(
    "Errors",
    "HTTP 422: the request failed validation; the body is the validation error body (`detail` array of `loc`, `msg`, "
    "`type`).",
)
def test_every_invalid_field_is_listed(server: ServerUnderTest) -> None:
    body = minimal_body(KLEIN) | {"steps": 0, "seed": -1, "width": 1, "images": [photo(), 7]}
    assert {entry["loc"][-1] for entry in problems(server.submit(KLEIN, body))} >= {"steps", "seed", "width", "1"}
    problems(server.post(f"/v1/{KLEIN}", [1]))


@_decided('`{"detail": "<string>"}` for all but 422 validation')
def test_other_errors_have_a_detail_text(server: ServerUnderTest) -> None:
    error_detail(server.get("/v1/no-such-path"), 404)
    error_detail(server.post("/v1/gen-pro-1.0-fill-finetuned", {"finetune_id": NO_FINETUNE, "image": cut_out()}), 400)


@_decided(
    "too many active tasks for the project (default 24), too many requests, or the endpoint's queue is full: each "
    "says which, with `Retry-After`"
)
def test_too_many_active_tasks_are_rejected(server: ServerUnderTest) -> None:
    body = minimal_body(KLEIN) | {"width": 1024, "height": 1024, "steps": 16}
    for _ in range(_MANY):
        response = server.submit(KLEIN, body, retry=False)
        if response.status_code != 200:
            error_detail(response, 429)
            assert response.headers["retry-after"].isdigit()
            return
    pytest.skip(f"this project may have {_MANY} tasks at a time")


@_decided("never echo the value of a secret or an image")
def test_errors_do_not_echo_secrets_or_images(server: ServerUnderTest) -> None:
    image = make_truncated()
    body = {"prompt": "x", "images": [image], "webhook_secret": [_SECRET_VALUE], "steps": 0}
    response = server.post(f"/v1/{KLEIN}", body)
    problems(response)
    assert _SECRET_VALUE not in response.text
    assert image not in response.text
