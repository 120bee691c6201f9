"""Signatures against the official verifier, and when a delivery is tried again."""

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
from serve_app.webhooks.outbox import max_age_s, max_attempts, wait_s
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
def test_the_official_verifier_takes_it_with_the_secrets_key(secret: str, key: bytes) -> None:
    at = datetime.now(UTC)
    headers = signature_headers(ID, at, BODY, secret, [PLAIN])
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == (ID, str(int(at.timestamp())))
    assert headers[PLAIN] == "sha256=" + hmac.new(secret.encode(), BODY, hashlib.sha256).hexdigest()
    assert Webhook(key).verify(BODY, headers) == json.loads(BODY)
    if secret.startswith("whsec_"):
        assert Webhook(secret).verify(BODY, headers) == json.loads(BODY)


@pytest.mark.parametrize("secret", [None, ""])
def test_without_a_secret_nothing_is_signed(secret: str | None) -> None:
    headers = signature_headers(ID, datetime.now(UTC), BODY, secret, [PLAIN])
    assert set(headers) == {"webhook-id", "webhook-timestamp"}


@pytest.mark.parametrize("plain", [[], [PLAIN], [PLAIN, "X-Hub-Signature-256"]])
def test_the_plainer_form_stands_under_every_name_that_is_asked_for(plain: list[str]) -> None:
    headers = signature_headers(ID, datetime.now(UTC), BODY, "a secret", plain)
    standard = {"webhook-id", "webhook-timestamp", "webhook-signature"}
    assert set(headers) == standard | set(plain)
    assert len({headers[name] for name in plain}) <= 1


@pytest.mark.parametrize("secret", ["whsec_*", "whsec_a", "whsec_ключ", "whsec_AA AA"])
def test_what_is_no_base64_after_the_prefix_is_no_secret(secret: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the decoder says
        decode_secret(secret)


DAY_S = 24 * 3600
STEADY = WebhookSettings(jitter=0)


@pytest.fixture
def random() -> Random:
    return Random(7)


def waits(policy: WebhookSettings, random: Random) -> list[float | None]:
    """After each attempt that there can be."""
    return [wait_s(policy, attempt, None, random) for attempt in range(1, max_attempts(policy) + 1)]


def test_the_waits_are_those_of_the_schedule_and_the_last_attempt_has_none(random: Random) -> None:
    assert waits(STEADY, random) == [5, 30, 120, 600, 3600, 6 * 3600, DAY_S, None]
    assert wait_s(STEADY, 100, None, random) is None
    assert wait_s(STEADY, max_attempts(STEADY), 60, random) is None, "a wish adds no attempt"
    once = WebhookSettings(schedule_s=())
    assert (max_attempts(once), wait_s(once, 1, 10, random)) == (1, None)
    twice = WebhookSettings(schedule_s=(10, 20), timeout_s=5)
    assert (max_attempts(twice), max_age_s(twice)) == (3, 1.5 * (10 + 20 + 3 * 5))


@pytest.mark.parametrize("jitter", [0.1, 0.5, 1.0])
def test_waits_differ_by_no_more_than_the_jitter_and_do_differ(random: Random, jitter: float) -> None:
    policy = WebhookSettings(schedule_s=(100,), jitter=jitter)
    waits = [wait_s(policy, 1, None, random) or 0 for _ in range(500)]
    assert 100 * (1 - jitter) <= min(waits) < 100 - 80 * jitter
    assert 100 + 80 * jitter < max(waits) <= 100 * (1 + jitter)


@pytest.mark.parametrize(
    ("requested_s", "expected_s"),
    [(None, 30), (0, 30), (29, 30), (31, 31), (DAY_S, DAY_S), (DAY_S + 1, DAY_S), (1e9, DAY_S)],
)
def test_a_destination_can_put_a_try_off_by_up_to_a_day_and_never_forward(
    random: Random, requested_s: float | None, expected_s: float
) -> None:
    assert wait_s(STEADY, 2, requested_s, random) == expected_s
