"""What a receiver gets. The kit listens on this machine."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Final

from serve_app.conformance.answers import Json, json_of
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import KLEIN
from serve_app.conformance.receiver import Delivery
from serve_app.conformance.session import TERMINAL, Session, minimal
from serve_app.conformance.verdicts import Broken, Skipped, expect

topic = Topic("webhooks")

_EVENTS: Final = "Events"
_DECIDED: Final = "Decided: webhooks"
_ARRIVAL_S: Final = 30.0
"""How long after the end of its task a webhook may take."""
_RETRY_S: Final = 45.0
"""How long the first repetition may take."""
_SECRET: Final = "conformance-secret"
_WHSEC: Final = "whsec_" + base64.b64encode(b"conformance conformance!").decode()


async def _delivered(
    session: Session, *answers: int, count: int = 1, secret: str | None = None
) -> tuple[Json, list[Delivery]]:
    """A task that has ended, and what came for it."""
    hook = session.hook(*answers)
    signed = {"webhook_secret": secret} if secret else {}
    response = await session.submit(KLEIN, minimal(KLEIN) | {"webhook_url": hook, **signed})
    if response.status_code == 422 and "webhook_url" in response.text:
        raise Skipped("the server may not call this machine's receiver: see --receiver-host")
    expect(response.status_code == 200, "200")
    task = await session.end_of(json_of(response)["id"])
    assert session.target.receiver is not None
    found = await session.target.receiver.deliveries(hook, count, _ARRIVAL_S if count == 1 else _RETRY_S)
    expect(len(found) >= count, f"{count} calls of the webhook_url; {len(found)} came")
    return task, found


async def _one(session: Session, secret: str | None = None) -> tuple[Json, Delivery]:
    """As `_delivered`; checks that ask for the same share a task."""
    name = f"webhook {secret}"
    if name not in session.target.finished:
        task, found = await _delivered(session, secret=secret)
        session.target.finished[name] = {"task": task, "delivery": found[0]}
    kept = session.target.finished[name]
    return kept["task"], kept["delivery"]


def _signature(secret: bytes, delivery: Delivery) -> str:
    head = f"{delivery.headers['webhook-id']}.{delivery.headers['webhook-timestamp']}.".encode()
    return "v1," + base64.b64encode(hmac.digest(secret, head + delivery.body, hashlib.sha256)).decode()


def _without_signatures(body: Json) -> Json:
    """Links are signed anew each time."""
    result = dict(body.get("result") or {})
    if "sample" in result:
        result["sample"] = result["sample"].partition("?")[0]
    return body | {"result": result}


@topic.holds(
    _EVENTS,
    "The service sends a webhook notification to `webhook_url` (when supplied in the submission) when a task has a "
    "result.",
    credits=1,
    needs="receiver",
)
async def a_webhook_comes(session: Session) -> None:
    await _one(session)


@topic.holds(_EVENTS, "The webhook payload is identical in shape to the polling response.", credits=1, needs="receiver")
async def a_webhook_is_as_polling(session: Session) -> None:
    task, delivery = await _one(session)
    body = json.loads(delivery.body)
    expect(set(body) == set(task), "the keys of the polling response")
    expect(set(body["result"] or {}) == set(task["result"] or {}), "the keys of its result")


@topic.holds(_EVENTS, "The status value for success is `Ready`.", credits=1, needs="receiver")
async def a_webhook_says_ready(session: Session) -> None:
    status = json.loads((await _one(session))[1].body)["status"]
    expect(status == "Ready", f"Ready, not {status}")


@topic.holds("States and transitions", "`SUCCESS` is no longer used.", credits=1, needs="receiver")
async def success_is_gone(session: Session) -> None:
    expect(b"SUCCESS" not in (await _one(session))[1].body, "no SUCCESS")


@topic.holds(
    _EVENTS,
    "`webhook_secret`, when supplied, is used for signature verification of the notification.",
    credits=1,
    needs="receiver",
)
async def a_secret_signs(session: Session) -> None:
    _, bare = await _one(session)
    _, signed = await _one(session, _SECRET)
    more = {name for name in set(signed.headers) - set(bare.headers) if "signature" in name}
    expect(bool(more), "a header with a signature")


@topic.holds(_EVENTS, "No other event kinds are sent.", credits=1, needs="receiver")
async def nothing_but_the_end_is_told(session: Session) -> None:
    status = json.loads((await _one(session))[1].body)["status"]
    expect(status in TERMINAL, f"the first call to tell of the end, not of {status}")


@topic.holds(
    _DECIDED,
    "byte-identical to what polling answers at that moment (`sample` freshly signed), plus nothing.",
    credits=1,
    needs="receiver",
)
async def a_webhook_has_the_same_values(session: Session) -> None:
    task, delivery = await _one(session)
    expect(_without_signatures(json.loads(delivery.body)) == _without_signatures(task), "what polling answers")


@topic.holds(
    _DECIDED,
    "`webhook-id` (same on every retry), `webhook-timestamp`, `webhook-signature`",
    credits=1,
    needs="receiver",
)
async def the_standard_headers_are_there(session: Session) -> None:
    _, delivery = await _one(session, _SECRET)
    missing = {"webhook-id", "webhook-timestamp", "webhook-signature"} - set(delivery.headers)
    expect(not missing, f"the headers {', '.join(sorted(missing))}")
    expect(abs(int(delivery.headers["webhook-timestamp"]) - time.time()) < 600, "webhook-timestamp in epoch seconds")


@topic.holds(
    _DECIDED,
    "`v1,` + base64 HMAC-SHA256 over `id.timestamp.body`; secret used as raw UTF-8 bytes",
    credits=1,
    needs="receiver",
)
async def the_signature_is_right(session: Session) -> None:
    _, delivery = await _one(session, _SECRET)
    told = delivery.headers.get("webhook-signature", "").split()
    expect(_signature(_SECRET.encode(), delivery) in told, "the signature that follows from the secret")


@topic.holds(_DECIDED, "or base64-decoded when it starts with `whsec_`", credits=1, needs="receiver")
async def whsec_secrets_are_decoded(session: Session) -> None:
    _, delivery = await _one(session, _WHSEC)
    secret = base64.b64decode(_WHSEC.removeprefix("whsec_"))
    told = delivery.headers.get("webhook-signature", "").split()
    expect(_signature(secret, delivery) in told, "the signature that follows from the decoded secret")


@topic.holds(_DECIDED, "`X-Webhook-Signature: sha256=<hex HMAC-SHA256(secret, body)>`", credits=1, needs="receiver")
async def the_other_signature_is_right(session: Session) -> None:
    _, delivery = await _one(session, _SECRET)
    right = "sha256=" + hmac.digest(_SECRET.encode(), delivery.body, hashlib.sha256).hex()
    expect(delivery.headers.get("x-webhook-signature") == right, "X-Webhook-Signature of the body")


@topic.holds(_DECIDED, "No secret: no signature headers.", credits=1, needs="receiver")
async def nothing_is_signed_without_a_secret(session: Session) -> None:
    _, delivery = await _one(session)
    signed = [name for name in delivery.headers if "signature" in name]
    expect(not signed, f"no {', '.join(signed)}")


@topic.holds(
    _DECIDED, "2xx within 15 s is success; anything else (3xx too) is retried at 5 s", credits=1, needs="receiver"
)
async def failures_are_repeated(session: Session) -> None:
    await _retried(session)


@topic.holds(
    _DECIDED,
    "A terminal task whose submission had `webhook_url` is delivered at least once",
    credits=1,
    needs="receiver",
)
async def a_repetition_is_the_same(session: Session) -> None:
    first, second = await _retried(session)
    if first.headers.get("webhook-id") != second.headers.get("webhook-id"):
        raise Broken("the same webhook-id on every retry")
    same = _without_signatures(json.loads(first.body)) == _without_signatures(json.loads(second.body))
    expect(same, "the same body but for the link's signature")


async def _retried(session: Session) -> tuple[Delivery, Delivery]:
    if "retried" not in session.target.finished:
        _, found = await _delivered(session, 307, count=2)
        session.target.finished["retried"] = {"found": found}
    first, second = session.target.finished["retried"]["found"][:2]
    return first, second


@topic.holds(_DECIDED, "http(s) only, no credentials in the URL")
async def odd_urls_are_refused(session: Session) -> None:
    for url in ("ftp://example.com/x", "file:///etc/passwd", "http://user:secret@example.com/x"):
        await session.refuses(KLEIN, {"webhook_url": url}, "webhook_url")


@topic.holds(_DECIDED, "the resolved address must be public (private, loopback, link-local, metadata ranges refused")
async def inner_addresses_are_refused(session: Session) -> None:
    for url in (
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/",
        "http://192.168.0.1/",
        "http://[fe80::1]/",
    ):
        await session.refuses(KLEIN, {"webhook_url": url}, "webhook_url")
