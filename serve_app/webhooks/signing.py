"""Signs what is sent: as Standard Webhooks has it, and in the plainer form that receivers of this dialect know."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import UTC, datetime

from standardwebhooks import Webhook

from serve_app.requests.fields import key_of


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
