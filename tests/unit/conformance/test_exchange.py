from __future__ import annotations

from typing import Any

import httpx2
import pytest

from serve_app.conformance.exchange import Exchange

SECRET = "a-secret-of-theirs"


def shown(body: Any = None, **answer: Any) -> Exchange:
    return Exchange.of("POST", "/v1/gen-x", body, httpx2.Response(200, **answer))


def test_it_tells_what_went_both_ways() -> None:
    exchange = shown({"steps": 0}, json={"detail": "no"}, headers={"Retry-After": "3"})
    assert exchange.sent == 'POST /v1/gen-x {"steps": 0}'
    assert exchange.received == '200 (content-type: application/json, retry-after: 3) {"detail": "no"}'


@pytest.mark.parametrize("body", [{"webhook_secret": SECRET}, {"body": {"webhook_secret": SECRET}}, [{"key": SECRET}]])
def test_secrets_are_left_out(body: Any) -> None:
    exchange = shown(body, json=body)
    assert SECRET not in exchange.sent + exchange.received


def test_signatures_of_links_are_left_out() -> None:
    exchange = shown(json={"sample": f"https://files.test/x?se=1&sig={SECRET}"})
    assert exchange.received.endswith('{"sample": "https://files.test/x?se=1&sig=…"}')


def test_pictures_are_cut() -> None:
    exchange = shown({"images": ["A" * 5000]}, content=b"\0" * 70, headers={"content-type": "image/png"})
    assert exchange.sent.endswith('{"images": ["AAAAAAAAAAAAAAAAAAAAAAAA… (5000 characters)"]}')
    assert exchange.received.endswith("70 bytes")


def test_long_answers_are_cut() -> None:
    assert len(shown(json=list(range(5000))).received) < 1600


def test_what_is_no_json_is_shown_as_it_is() -> None:
    assert shown(content=b"<html>", headers={"content-type": "text/html"}).received.endswith("<html>")
