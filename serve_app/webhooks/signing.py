"""Signs what is sent: as Standard Webhooks has it, and in the plainer form that receivers of this dialect know.

The secret is the key as it is, in UTF-8; after `whsec_` it is the base64 form of the key.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import UTC, datetime

import pybase64
from standardwebhooks import Webhook

SECRET_PREFIX = "whsec_"


def key_of(secret: str) -> bytes:
    """Raises ValueError for what goes on after `whsec_` in anything but base64."""
    if secret.startswith(SECRET_PREFIX):
        return pybase64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    return secret.encode()


def headers(
    webhook_id: str, at: datetime, body: bytes, secret: str | None, plain: Sequence[str] = ()
) -> dict[str, str]:
    """For a delivery of `body` sent at `at`; `plain` names headers of the plainer form. Unsigned without a secret."""
    told = {"webhook-id": webhook_id, "webhook-timestamp": str(int(at.timestamp()))}
    if not secret:
        return told
    # The library takes any time for UTC, and only text; what it signs are the bytes that are sent.
    told["webhook-signature"] = Webhook(key_of(secret)).sign(webhook_id, at.astimezone(UTC), body.decode())
    # Over the body alone, with the text of the secret as its receivers have it.
    digest = f"sha256={hmac.new(secret.encode(), body, 'sha256').hexdigest()}"
    return told | dict.fromkeys(plain, digest)
