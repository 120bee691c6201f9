"""Verification of webhooks by Standard Webhooks.

The service also signs the body alone for older destinations. That signature is ignored, as it does not cover the time.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import time
from collections.abc import Mapping
from typing import Final, cast

from gen_serve_client.errors import WebhookRefused
from gen_serve_client.types import TaskResult

_PREFIX: Final = "whsec_"
_VERSION: Final = "v1,"


def verify_webhook(secret: str, headers: Mapping[str, str], body: bytes, *, tolerance_s: float = 300.0) -> TaskResult:
    """Verifies a webhook and returns its task. A webhook may arrive more than once: skip repeats by the task's `id`.

    `headers`: names in any case. `body`: the raw bytes. Raises WebhookRefused unless it was signed with `secret`, at
    most `tolerance_s` seconds ago or ahead. Raises ValueError for an invalid secret.
    """
    lower_headers = {name.lower(): value for name, value in headers.items()}
    webhook_id, at = lower_headers.get("webhook-id", ""), lower_headers.get("webhook-timestamp", "")
    signatures = lower_headers.get("webhook-signature", "").split()
    if not (webhook_id and signatures and at.isascii() and at.isdigit()):
        raise WebhookRefused("not signed: webhook-id, webhook-timestamp or webhook-signature is missing or damaged")
    digest = hmac.digest(_key(secret), f"{webhook_id}.{at}.".encode() + body, "sha256")
    expected = _VERSION.encode() + base64.b64encode(digest)
    if not any(hmac.compare_digest(expected, each.encode()) for each in signatures):
        raise WebhookRefused("signed with another secret, or changed in transit")
    if abs(time.time() - float(at[:15])) > tolerance_s:
        raise WebhookRefused(f"signed more than {tolerance_s:g} s ago or ahead")
    return cast(TaskResult, json.loads(body))


def _key(secret: str) -> bytes:
    if secret in ("", _PREFIX):
        raise ValueError("the secret is empty")
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"the secret after {_PREFIX} is not base64") from None
