"""Credits, prices, and usage reports of licensed models."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pytest
from server_under_test import KLEIN, ServerUnderTest, error_detail, is_number, minimal_body, problems
from support.promises import promise

_money = partial(promise, "Decided: money, accounts")
_usage = partial(promise, "14. Model usage")
_SLUGS: Final = ("flux-1-dev", "flux-1-kontext-dev", "flux-tools")


def _credits(server: ServerUnderTest) -> float:
    balance = server.get("/v1/credits").json()["credits"]
    assert is_number(balance)
    return balance


def _price(server: ServerUnderTest, endpoint: str, **change: Any) -> float:
    response = server.post_until_accepted(
        "/v1/pricing", {"path": f"/v1/{endpoint}", "body": minimal_body(endpoint) | change}
    )
    assert response.status_code == 200, response.text
    return response.json()["cost"]


@_money('`GET /v1/credits` → `{"credits": n}`.')
@_money("`POST /v1/pricing` takes a path and a body and answers the estimate without submitting.")
@promise("What the service does", "Work is billed in credits.")
def test_task_costs_the_quoted_price(server: ServerUnderTest) -> None:
    before = _credits(server)
    price = _price(server, KLEIN, width=1024, height=1024)
    assert _credits(server) == before
    assert server.create_task(KLEIN, {"width": 1024, "height": 1024})["cost"] == price
    assert round(before - _credits(server), 3) == price


@_money("megapixels rounded up to whole ones, per endpoint from the price table in the catalog")
@_money("flat where the table says so")
def test_prices_grow_by_megapixel_or_are_flat(server: ServerUnderTest) -> None:
    one, also_one, two, three = (
        _price(server, "gen-2-max", width=width, height=1024) for width in (64, 1024, 1040, 2064)
    )
    assert one == also_one < two
    assert abs((three - two) - (two - also_one)) < 1e-6
    assert _price(server, "gen-pro", width=256, height=256) == _price(server, "gen-pro", width=1440, height=1440)


@_money("`POST /v1/pricing` takes a path and a body")
def test_pricing_rejects_invalid_requests(server: ServerUnderTest) -> None:
    error_detail(server.post("/v1/pricing", {"path": "/v1/gen-of-no-model", "body": {}}), 404)
    problems(server.post("/v1/pricing", {"path": f"/v1/{KLEIN}", "body": minimal_body(KLEIN) | {"steps": 0}}))


@pytest.mark.needs("results")
@_money(
    "Held at submission (402 when it does not fit), settled when `Ready`, given back in full on `Error` or moderation."
)
def test_task_settles_at_its_price(server: ServerUnderTest) -> None:
    reply = server.create_task(KLEIN)
    before = _credits(server)
    task = server.wait_for_end(reply["id"])
    refund = round(_credits(server) - before, 3)
    assert refund == (0 if task["status"] == "Ready" else reply["cost"])


# Licensed models


@pytest.fixture
def usage_path(server: ServerUnderTest) -> str:
    """The usage path of a model that the server knows."""
    for slug in _SLUGS:
        path = f"/v1/licenses/models/{slug}/usage"
        if server.post(path, {"number_of_generations": 1}).status_code in (200, 403):
            return path
    pytest.skip("no slug of a licensed model is known")


@promise("Usage record", "`number_of_generations`, integer, greater than 0, default 1.")
@_usage("Body (required): `number_of_generations`, integer, greater than 0, default 1.")
@_usage("422: Invalid body or parameters: validation error body")
@pytest.mark.parametrize("body", [None, [1], *({"number_of_generations": n} for n in (0, -1, 1.5, "many"))])
def test_invalid_usage_report_is_rejected(server: ServerUnderTest, usage_path: str, body: Any) -> None:
    errors = problems(server.post(usage_path, body))
    assert not isinstance(body, dict) or "number_of_generations" in errors[0]["loc"]


@_usage("200: Usage recorded: `message` string")
@_usage(
    "403: The model is not licensed for the caller; a subscription change may take 15 minutes to take effect: "
    "`detail` string"
)
@_money("`model_slug` known in the catalog or 400; organization licensed or 403")
def test_usage_report_needs_a_license(server: ServerUnderTest, usage_path: str) -> None:
    response = server.post(usage_path, {})
    if response.status_code == 200:
        assert isinstance(response.json()["message"], str)
    else:
        error_detail(response, 403)


@_usage("400: Model slug is not supported for usage reporting: `detail` string")
def test_unknown_model_slug_is_rejected(server: ServerUnderTest) -> None:
    error_detail(server.post("/v1/licenses/models/conformance-no-such-model/usage", {}), 400)
