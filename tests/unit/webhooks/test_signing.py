"""Signatures of webhooks against the official verifier."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from serve_app.webhooks.sender import decode_secret, signature_headers

ID = "2b7b8b6e-6c1c-4f0e-9f3a-0a4c6c3a5d11"
BODY = '{"id":"2b7b8b6e","result":{"prompt":"Küche in 東京 🍜, \\"links\\""}}'.encode()
PLAIN = "X-Webhook-Signature"
KEY = bytes(range(200, 232))
WHSEC = "whsec_" + base64.b64encode(KEY).decode()

SECRETS: dict[str, tuple[str, bytes]] = {
    "text": ("a secret", b"a secret"),
    "not-ascii": ("ключ 鍵", "ключ 鍵".encode()),
    "base64": (WHSEC, KEY),
    "base64-without-prefix-is-text": (WHSEC.removeprefix("whsec_"), WHSEC.removeprefix("whsec_").encode()),
    "prefix-elsewhere-is-text": ("my whsec_AAAA", b"my whsec_AAAA"),
}


@pytest.mark.parametrize(("secret", "key"), SECRETS.values(), ids=SECRETS)
def test_official_verifier_accepts_signatures(secret: str, key: bytes) -> None:
    at = datetime.now(UTC)
    headers = signature_headers(ID, at, BODY, secret, [PLAIN])
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == (ID, str(int(at.timestamp())))
    assert headers[PLAIN] == "sha256=" + hmac.new(secret.encode(), BODY, hashlib.sha256).hexdigest()
    assert Webhook(key).verify(BODY, headers) == json.loads(BODY)
    if secret.startswith("whsec_"):
        assert Webhook(secret).verify(BODY, headers) == json.loads(BODY)


@pytest.mark.parametrize("secret", [None, ""])
def test_no_signature_without_a_secret(secret: str | None) -> None:
    headers = signature_headers(ID, datetime.now(UTC), BODY, secret, [PLAIN])
    assert set(headers) == {"webhook-id", "webhook-timestamp"}


@pytest.mark.parametrize("plain", [[], [PLAIN], [PLAIN, "X-Hub-Signature-256"]])
def test_plain_signature_has_each_configured_header(plain: list[str]) -> None:
    headers = signature_headers(ID, datetime.now(UTC), BODY, "a secret", plain)
    standard = {"webhook-id", "webhook-timestamp", "webhook-signature"}
    assert set(headers) == standard | set(plain)
    assert len({headers[name] for name in plain}) <= 1


@pytest.mark.parametrize("secret", ["whsec_*", "whsec_a", "whsec_ключ", "whsec_AA AA"])
def test_invalid_base64_secret_is_refused(secret: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the decoder says
        decode_secret(secret)
