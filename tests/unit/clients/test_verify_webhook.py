"""The Python client knows the service's webhooks from others."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from gen_serve_client import WebhookRefused, verify_webhook

from serve_app.webhooks.sender import signature_headers

ID = "2b7b8b6e-6c1c-4f0e-9f3a-0a4c6c3a5d11"
TASK = {"id": ID, "status": "Ready", "result": {"prompt": "Küche in 東京"}, "progress": 1.0}
BODY = json.dumps(TASK, ensure_ascii=False).encode()
WHSEC = "whsec_" + base64.b64encode(bytes(range(200, 232))).decode()
SECRET = "a secret"


def signed(secret: str | None = SECRET, age_s: float = 0, body: bytes = BODY) -> dict[str, str]:
    at = datetime.now(UTC) - timedelta(seconds=age_s)
    return signature_headers(ID, at, body, secret, ["X-Webhook-Signature"])


@pytest.mark.parametrize("secret", [SECRET, "ключ 鍵", WHSEC])
@pytest.mark.parametrize("spelled", [str.lower, str.upper, str.title])
def test_what_the_service_signs_is_its_task(secret: str, spelled: Callable[[str], str]) -> None:
    headers = {spelled(name): value for name, value in signed(secret).items()}
    assert verify_webhook(secret, headers, BODY) == TASK


def test_one_of_several_signatures_is_enough() -> None:
    headers = signed()
    headers["webhook-signature"] = f"v1,AAAA {headers['webhook-signature']} v1a,BBBB"
    assert verify_webhook(SECRET, headers, BODY) == TASK


@pytest.mark.parametrize(
    ("secret", "headers", "body"),
    [
        ("another", signed(), BODY),
        (SECRET, signed(), BODY + b" "),
        (SECRET, signed() | {"webhook-id": "another"}, BODY),
        (SECRET, signed() | {"webhook-timestamp": "1"}, BODY),
        (SECRET, signed() | {"webhook-signature": "v1,"}, BODY),
        (SECRET, signed() | {"webhook-signature": "v1,é"}, BODY),
        (WHSEC, signed(WHSEC.removeprefix("whsec_")), BODY),
    ],
    ids=["secret", "body", "id", "time", "signature", "not-ascii", "decoded"],
)
def test_what_was_not_signed_so_is_refused(secret: str, headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(WebhookRefused, match="another secret"):
        verify_webhook(secret, headers, body)


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_what_is_not_signed_is_refused(missing: str) -> None:
    headers = {name: value for name, value in signed().items() if name != missing}
    with pytest.raises(WebhookRefused, match="not signed"):
        verify_webhook(SECRET, headers, BODY)


def test_the_older_signature_alone_is_not_enough() -> None:
    plain = {name: value for name, value in signed().items() if name == "X-Webhook-Signature"}
    assert plain
    with pytest.raises(WebhookRefused, match="not signed"):
        verify_webhook(SECRET, plain, BODY)


@pytest.mark.parametrize("stamp", ["", "now", "-5", "1e9", "\N{SUPERSCRIPT TWO}"])
def test_what_is_no_time_is_refused(stamp: str) -> None:
    with pytest.raises(WebhookRefused, match="not signed"):
        verify_webhook(SECRET, signed() | {"webhook-timestamp": stamp}, BODY)


@pytest.mark.parametrize("age_s", [400, -400])
def test_what_is_old_or_ahead_is_refused(age_s: float) -> None:
    with pytest.raises(WebhookRefused, match="more than 300 s"):
        verify_webhook(SECRET, signed(age_s=age_s), BODY)
    assert verify_webhook(SECRET, signed(age_s=age_s), BODY, tolerance_s=500) == TASK


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_not base64"])
def test_what_can_be_no_secret_is_a_mistake_of_the_caller(secret: str) -> None:
    with pytest.raises(ValueError, match=r"secret|base64"):
        verify_webhook(secret, signed(), BODY)
