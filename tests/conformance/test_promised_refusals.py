"""Authentication, and the form of errors."""

from __future__ import annotations

from typing import Any, Final

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

_BODY: Final = "Validation error body (HTTP 422)"
_DECIDED: Final = "Decided: errors"
_MONEY: Final = "Decided: money, accounts"
_WRONG: Final = "gen_conformance-no-such-key"
_TOKEN: Final = "Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJub2JvZHkifQ.c2lnbmF0dXJl"
_SECRET_VALUE: Final = "a-secret-that-is-never-shown"


@promise("Authentication", "Every endpoint is secured by an API key sent in the request header `x-key`.")
@promise("Endpoints", "All endpoints require the header `x-key` (see Authentication).")
@promise("14. Model usage", "Header: `x-key`.")
@promise(_DECIDED, '403 `{"detail": "Not authenticated"}` when `x-key` is missing')
@promise(_DECIDED, '403 `"Not authenticated - Invalid Authentication"` when it is wrong, revoked or expired')
@pytest.mark.parametrize("path", [*SUBMITTED, VIDEO, "licenses/models/any/usage"])
def test_endpoints_need_a_key(server: ServerUnderTest, path: str) -> None:
    assert error_detail(server.post(f"/v1/{path}", {}, key=""), 403) == "Not authenticated"
    assert error_detail(server.post(f"/v1/{path}", {}, key=_WRONG), 403) == "Not authenticated - Invalid Authentication"


@promise(_MONEY, "Keys: `gen_<random>`")
@promise(_MONEY, "accept `Authorization: Bearer <JWT>` from configured issuers (JWKS)")
def test_unknown_token_is_rejected(server: ServerUnderTest) -> None:
    assert server.key.startswith("gen_")
    response = server.post(f"/v1/{KLEIN}", minimal_body(KLEIN), key="", headers={"Authorization": _TOKEN})
    assert response.status_code in (401, 403)


@promise(_BODY, "`detail`: array of objects: One entry per problem")
@promise(_BODY, "`detail[].msg`: string: Message")
@promise(_BODY, "`detail[].type`: string: Error type")
@promise(_DECIDED, "`detail[]` of `{type, loc, msg}` (`loc` array of strings")
def test_every_invalid_field_is_listed(server: ServerUnderTest) -> None:
    response = server.submit(KLEIN, {"prompt": "x", "steps": 0, "seed": -1, "width": 1, "height": 64})
    assert {entry["loc"][-1] for entry in problems(response)} >= {"steps", "seed", "width"}


@promise(_BODY, "`detail[].loc`: array of strings: Location of the faulty field")
def test_error_locations_are_strings(server: ServerUnderTest) -> None:
    assert "1" in server.expect_rejected(KLEIN, images=[photo(), 7])["loc"]


@promise(
    "Errors",
    "HTTP 422: the request failed validation; the body is the validation error body (`detail` array of `loc`, `msg`, "
    "`type`).",
)
@pytest.mark.parametrize("body", [{}, {"prompt": 7}, {"prompt": None}, [1]])
def test_invalid_body_is_422(server: ServerUnderTest, body: Any) -> None:
    problems(server.post("/v1/gen-2-max", body))


@promise(
    "Endpoints",
    "Every generation endpoint answers with a task submission response on success (HTTP 200) and the validation error "
    "body on HTTP 422.",
)
@pytest.mark.parametrize("endpoint", SUBMITTED)
def test_every_endpoint_validates_requests(server: ServerUnderTest, endpoint: str) -> None:
    problems(server.post(f"/v1/{endpoint}", {"seed": "no number"}))


@promise(_DECIDED, '`{"detail": "<string>"}` for all but 422 validation')
def test_other_errors_have_a_detail_text(server: ServerUnderTest) -> None:
    error_detail(server.get("/v1/no-such-path"), 404)
    error_detail(server.post("/v1/gen-pro-1.0-fill-finetuned", {"finetune_id": NO_FINETUNE, "image": cut_out()}), 400)


@promise(_DECIDED, "never echo the value of a secret or an image")
def test_errors_do_not_echo_secrets_or_images(server: ServerUnderTest) -> None:
    image = make_truncated()
    body = {"prompt": "x", "images": [image], "webhook_secret": [_SECRET_VALUE], "steps": 0}
    response = server.post(f"/v1/{KLEIN}", body)
    problems(response)
    assert _SECRET_VALUE not in response.text
    assert image not in response.text
