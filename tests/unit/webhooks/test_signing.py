"""Webhooks: signatures, by the official verifier, and the retry schedule."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from random import Random

import pytest
from standardwebhooks import Webhook

from serve_app.config.settings import WebhookSettings
from serve_app.webhooks.policy import RetrySchedule
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


@pytest.mark.parametrize(
    ("secret", "plain"),
    [(None, [PLAIN]), ("", [PLAIN]), ("s", []), ("s", [PLAIN]), ("s", [PLAIN, "X-Hub-Signature-256"])],
)
def test_each_configured_header_is_signed_with_a_secret_only(secret: str | None, plain: list[str]) -> None:
    headers = signature_headers(ID, datetime.now(UTC), BODY, secret, plain)
    signed = {"webhook-signature", *plain} if secret else set[str]()
    assert set(headers) == {"webhook-id", "webhook-timestamp"} | signed
    assert len({headers[name] for name in signed & set(plain)}) <= 1


@pytest.mark.parametrize("secret", ["whsec_*", "whsec_a", "whsec_ключ", "whsec_AA AA"])
def test_invalid_base64_secret_is_refused(secret: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message is the decoder's
        decode_secret(secret)


DAY_S = 24 * 3600
RANDOM = Random(7)


def schedule(**settings: object) -> RetrySchedule:
    return RetrySchedule.from_settings(WebhookSettings.model_validate({"jitter": 0, **settings}))


def test_waits_follow_the_schedule_and_the_last_attempt_has_none() -> None:
    retries = schedule()
    waits = [retries.wait_s(attempt, None, RANDOM) for attempt in range(1, retries.max_attempts + 1)]
    assert waits == [5, 30, 120, 600, 3600, 6 * 3600, DAY_S, None]
    assert retries.wait_s(100, None, RANDOM) is None
    assert retries.wait_s(retries.max_attempts, 60, RANDOM) is None, "Retry-After adds no attempt"


def test_attempts_and_age_are_limited_by_the_schedule() -> None:
    once = schedule(schedule_s=())
    assert (once.max_attempts, once.wait_s(1, 10, RANDOM)) == (1, None)
    twice = schedule(schedule_s=(10, 20), timeout_s=5)
    assert (twice.max_attempts, twice.max_age_s) == (3, 1.5 * (10 + 20 + 3 * 5))


def test_waits_differ_by_at_most_the_jitter() -> None:
    for jitter in (0.1, 1.0):
        retries = schedule(schedule_s=(100,), jitter=jitter)
        waits = [retries.wait_s(1, None, RANDOM) or 0 for _ in range(500)]
        assert 100 * (1 - jitter) <= min(waits) < 100 - 80 * jitter
        assert 100 + 80 * jitter < max(waits) <= 100 * (1 + jitter)


@pytest.mark.parametrize(
    ("requested_s", "expected_s"),
    [(None, 30), (0, 30), (29, 30), (31, 31), (DAY_S, DAY_S), (DAY_S + 1, DAY_S), (1e9, DAY_S)],
)
def test_retry_after_postpones_by_a_day_at_most(requested_s: float | None, expected_s: float) -> None:
    assert schedule().wait_s(2, requested_s, RANDOM) == expected_s
