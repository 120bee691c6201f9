"""Webhooks, received by a destination on this machine."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from functools import partial
from typing import Any, Final

import pytest
from server_under_test import KLEIN, Json, ServerUnderTest, minimal_body
from support.promises import promise
from support.webhook_receiver import Received

needs = pytest.mark.needs("destination", "results")
_events = partial(promise, "Events")
_decided = partial(promise, "Decided: webhooks")
_SECRET: Final = "conformance-secret"
_WHSEC_KEY: Final = b"conformance conformance!"
_WHSEC: Final = "whsec_" + base64.b64encode(_WHSEC_KEY).decode()


def _deliver(server: ServerUnderTest, *answers: int, **secret: Any) -> tuple[Json, list[Received]]:
    """Returns an ended task and the calls of its webhook; tests with the same arguments share a task."""
    name = f"webhook {answers} {secret}"
    if name not in server.cache:
        hook = server.new_hook(*answers)
        response = server.submit(KLEIN, minimal_body(KLEIN) | {"webhook_url": hook, **secret})
        if response.status_code == 422 and "webhook_url" in response.text:
            pytest.skip("the server may not call this machine's destination: see --destination-host")
        task = server.wait_for_end(response.json()["id"])
        server.cache[name] = task, server.wait_for_calls(hook, 1 + len(answers))
    return server.cache[name]


def _verify(secret: bytes, delivery: Received) -> bool:
    head = f"{delivery.headers['webhook-id']}.{delivery.headers['webhook-timestamp']}.".encode()
    signature = "v1," + base64.b64encode(hmac.digest(secret, head + delivery.body, hashlib.sha256)).decode()
    return signature in delivery.headers["webhook-signature"].split()


def _without_signatures(body: Json) -> Json:
    """Removes the query of the result's link, which is signed anew each time."""
    return body | {"result": body["result"] | {"sample": body["result"]["sample"].partition("?")[0]}}


@needs
@_events(
    "The service sends a webhook notification to `webhook_url` (when supplied in the submission) when a task has a "
    "result."
)
@_events("The webhook payload is identical in shape to the polling response.")
@_events("The status value for success is `Ready`.")
@_events("No other event kinds are sent.")
@promise("States and transitions", "`SUCCESS` is no longer used.")
@_decided("byte-identical to what polling answers at that moment (`sample` freshly signed), plus nothing.")
@_decided("No secret: no signature headers.")
def test_webhook_body_equals_polling(server: ServerUnderTest) -> None:
    task, [delivery] = _deliver(server)
    body = json.loads(delivery.body)
    assert body["status"] == "Ready"
    assert _without_signatures(body) == _without_signatures(task)
    assert not [name for name in delivery.headers if "signature" in name]


@needs
@_decided("or base64-decoded when it starts with `whsec_`")
@_events("`webhook_secret`, when supplied, is used for signature verification of the notification.")
@_decided("`webhook-id` (same on every retry), `webhook-timestamp`, `webhook-signature`")
@_decided("`v1,` + base64 HMAC-SHA256 over `id.timestamp.body`; secret used as raw UTF-8 bytes")
@_decided("`X-Webhook-Signature: sha256=<hex HMAC-SHA256(secret, body)>`")
@pytest.mark.parametrize(("secret", "key"), [(_SECRET, _SECRET.encode()), (_WHSEC, _WHSEC_KEY)], ids=["text", "whsec"])
def test_secret_signs_the_webhook(server: ServerUnderTest, secret: str, key: bytes) -> None:
    _, [delivery] = _deliver(server, webhook_secret=secret)
    assert _verify(key, delivery)
    assert abs(int(delivery.headers["webhook-timestamp"]) - time.time()) < 600
    plain = "sha256=" + hmac.digest(secret.encode(), delivery.body, hashlib.sha256).hex()
    assert delivery.headers["x-webhook-signature"] == plain


@needs
@_decided("2xx within 15 s is success; anything else (3xx too) is retried at 5 s")
@_decided("A terminal task whose submission had `webhook_url` is delivered at least once")
def test_failed_webhook_is_retried(server: ServerUnderTest) -> None:
    _, [first, second, *_] = _deliver(server, 307)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert _without_signatures(json.loads(first.body)) == _without_signatures(json.loads(second.body))


@_decided("http(s) only, no credentials in the URL")
@_decided("the resolved address must be public (private, loopback, link-local, metadata ranges refused")
@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/x",
        "http://a:b@example.com/x",
        "http://169.254.169.254/",
        "http://10.0.0.1/",
        "http://[fe80::1]/",
    ],
)
def test_private_webhook_address_is_rejected(server: ServerUnderTest, url: str) -> None:
    server.expect_rejected(KLEIN, webhook_url=url)
