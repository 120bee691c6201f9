"""The Python client without a network: retries, keys, webhook signatures, generated types."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, get_args

import generate_types
import pytest
from gen_serve_client import GenServeError, Retries, WebhookRefused, types, verify_webhook
from gen_serve_client.calls import Calls
from gen_serve_client.exchange import Answer, HttpRequest, NoAnswer, Pause, Reply, Steps
from gen_serve_client.retries import retry_after_s

from serve_app.webhooks.sender import signature_headers

URL = "http://127.0.0.1:8000"
BROKEN = NoAnswer("broken", connected=True)
NO_SERVER = NoAnswer("no server", connected=False)


def answer(status: int, body: bytes = b"{}", retry_after: str = "") -> Answer:
    return Answer(status, {"retry-after": retry_after} if retry_after else {}, body)


def pauses(steps: Steps[Any], answers: list[Answer | NoAnswer]) -> list[float]:
    """Returns the pauses between requests until the call has its result."""
    remaining, waits = list(answers), list[float]()
    reply: Reply = None
    with suppress(StopIteration, GenServeError):
        while True:
            step = steps.send(reply)
            reply = remaining.pop(0) if isinstance(step, HttpRequest) else None
            if isinstance(step, Pause):
                waits.append(step.seconds)
    return waits


def calls(**options: Any) -> Calls:
    return Calls(URL, "secret", Retries(**options))


def test_waits_double_up_to_the_longest() -> None:
    waits = pauses(calls(first_wait_s=1, longest_wait_s=3).credits(), [BROKEN] * 6)
    assert len(waits) == 5
    for wait, most in zip(waits, (1, 2, 3, 3, 3), strict=True):
        assert most / 2 <= wait <= most


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_retry_after_is_obeyed(status: int) -> None:
    (wait,) = pauses(calls().credits(), [answer(status, retry_after="7"), answer(200, b'{"credits": 1}')])
    assert wait == 7.0


@pytest.mark.parametrize("status", [429, 503])
def test_too_long_retry_after_ends_the_retries(status: int) -> None:
    assert pauses(calls().credits(), [answer(status, retry_after="31")]) == []


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 410, 413, 422])
def test_final_refusal_is_not_retried(status: int) -> None:
    assert pauses(calls().submit("gen-pro", {}, None), [answer(status)]) == []


def test_request_in_progress_is_retried() -> None:
    assert len(pauses(calls().submit("gen-pro", {}, None), [answer(409, retry_after="1"), answer(200)])) == 1


@pytest.mark.parametrize("many", [1, 3])
def test_429_has_its_own_number_of_tries(many: int) -> None:
    config = calls(too_many_tries=many, first_wait_s=0)
    assert len(pauses(config.credits(), [answer(429)] * 10)) == many - 1


@pytest.mark.parametrize(("reply", "again"), [(NO_SERVER, 1), (answer(429), 1), (BROKEN, 0), (answer(500), 0)])
def test_deletion_is_retried_only_if_it_was_not_tried(reply: Answer | NoAnswer, again: int) -> None:
    assert len(pauses(calls().delete_finetune("x"), [reply, answer(200)])) == again


def test_retries_end_at_the_timeout_of_the_caller() -> None:
    assert pauses(calls(first_wait_s=20).wait("x", None, 5.0), [BROKEN]) == []


def test_polls_of_a_service_without_long_polling_are_spaced() -> None:
    body = b'{"id": "x", "status": "%s"}'
    (wait,) = pauses(calls().wait("x", None, None), [answer(200, body % b"Pending"), answer(200, body % b"Error")])
    assert 0.9 < wait <= 1.0


def test_invalid_tries_and_keys_are_refused() -> None:
    for bad in ({"tries": 0}, {"too_many_tries": 0}):
        with pytest.raises(ValueError, match="once at least"):
            Retries(**bad)
    for key in ("two\nlines", "clé", "tab\t"):
        with pytest.raises(ValueError, match="printable ASCII"):
            Calls(URL, key, Retries())


def test_retry_after_may_be_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert 80 < (retry_after_s({"retry-after": later}) or 0) <= 90
    assert retry_after_s({"retry-after": "Mon, 01 Jan 2024 00:00:00 GMT"}) == 0.0


@pytest.mark.parametrize("value", ["", "soon", "-1", "1.5", "\N{SUPERSCRIPT TWO}", "Mon, 99 Jan 2024 00:00:00 GMT"])
def test_invalid_retry_after_is_ignored(value: str) -> None:
    assert retry_after_s({"retry-after": value}) is None
    assert retry_after_s({}) is None


@pytest.mark.parametrize(
    ("base_url", "url", "goes"),
    [
        (URL, f"{URL}/v1/results/x", True),
        (URL, "HTTP://127.0.0.1:8000/x", True),
        ("https://a.test", "https://a.test:443/x", True),
        ("http://A.test:80", "http://a.test/x", True),
        (URL, "http://127.0.0.1:8001/x", False),
        (URL, "https://127.0.0.1:8000/x", False),
        (URL, "http://127.0.0.1:8000@evil.test/x", False),
        (URL, "http://127.0.0.1:8000.evil.test/x", False),
    ],
)
def test_key_is_sent_to_its_own_origin_only(base_url: str, url: str, goes: bool) -> None:
    request = next(Calls(base_url, "secret", Retries()).fetch(url))
    assert isinstance(request, HttpRequest)
    assert ("x-key" in request.headers) == goes


ID = "2b7b8b6e-6c1c-4f0e-9f3a-0a4c6c3a5d11"
TASK = {"id": ID, "status": "Ready", "result": {"prompt": "Küche in 東京"}, "progress": 1.0}
BODY = json.dumps(TASK, ensure_ascii=False).encode()
WHSEC = "whsec_" + base64.b64encode(bytes(range(200, 232))).decode()
SECRET = "a secret"


def sign(secret: str | None = SECRET, age_s: float = 0, body: bytes = BODY) -> dict[str, str]:
    at = datetime.now(UTC) - timedelta(seconds=age_s)
    return signature_headers(ID, at, body, secret, ["X-Webhook-Signature"])


@pytest.mark.parametrize("secret", [SECRET, "ключ 鍵", WHSEC])
@pytest.mark.parametrize("spelled", [str.lower, str.upper, str.title])
def test_signed_webhook_is_accepted(secret: str, spelled: Callable[[str], str]) -> None:
    headers = {spelled(name): value for name, value in sign(secret).items()}
    assert verify_webhook(secret, headers, BODY) == TASK


def test_one_of_several_signatures_is_enough() -> None:
    headers = sign()
    headers["webhook-signature"] = f"v1,AAAA {headers['webhook-signature']} v1a,BBBB"
    assert verify_webhook(SECRET, headers, BODY) == TASK


@pytest.mark.parametrize(
    ("secret", "headers", "body"),
    [
        ("another", sign(), BODY),
        (SECRET, sign(), BODY + b" "),
        (SECRET, sign() | {"webhook-id": "another"}, BODY),
        (SECRET, sign() | {"webhook-timestamp": "1"}, BODY),
        (SECRET, sign() | {"webhook-signature": "v1,"}, BODY),
        (SECRET, sign() | {"webhook-signature": "v1,é"}, BODY),
        (WHSEC, sign(WHSEC.removeprefix("whsec_")), BODY),
    ],
    ids=["secret", "body", "id", "time", "signature", "not-ascii", "decoded"],
)
def test_altered_webhook_is_refused(secret: str, headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(WebhookRefused, match="another secret"):
        verify_webhook(secret, headers, body)


def without(*missing: str) -> dict[str, str]:
    return {name: value for name, value in sign().items() if name not in missing}


@pytest.mark.parametrize(
    "headers",
    [
        *(without(name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")),
        without("webhook-id", "webhook-timestamp", "webhook-signature"),  # the older signature alone
        *(sign() | {"webhook-timestamp": stamp} for stamp in ("", "now", "-5", "1e9", "\N{SUPERSCRIPT TWO}")),
    ],
)
def test_unsigned_webhook_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(WebhookRefused, match="not signed"):
        verify_webhook(SECRET, headers, BODY)


@pytest.mark.parametrize("age_s", [400, -400])
def test_webhook_of_another_time_is_refused(age_s: float) -> None:
    with pytest.raises(WebhookRefused, match="more than 300 s"):
        verify_webhook(SECRET, sign(age_s=age_s), BODY)
    assert verify_webhook(SECRET, sign(age_s=age_s), BODY, tolerance_s=500) == TASK


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_not base64"])
def test_invalid_webhook_secret_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match=r"secret|base64"):
        verify_webhook(secret, sign(), BODY)


@pytest.fixture(scope="module")
def description(repository: Path) -> dict[str, Any]:
    return json.loads((repository / "openapi.json").read_text())


def test_generated_types_are_current(description: dict[str, Any]) -> None:
    assert generate_types.PYTHON_FILE.read_text() == generate_types.python(description), "run `make openapi`"
    assert generate_types.TYPESCRIPT_FILE.read_text() == generate_types.typescript(description), "run `make openapi`"


def test_types_name_every_endpoint(description: dict[str, Any]) -> None:
    served = {
        path.removeprefix("/v1/")
        for path, methods in description["paths"].items()
        if "generate" in methods.get("post", {}).get("tags", ()) and "410" not in methods["post"]["responses"]
    }
    assert len(served) > 20
    assert set(get_args(types.Endpoint)) == served


def test_types_follow_the_openapi_document(description: dict[str, Any]) -> None:
    described = json.loads(json.dumps(description))
    described["components"]["schemas"]["ImageKleinRequest"]["properties"]["mood"] = {"enum": ["calm", "wild"]}
    assert 'mood: NotRequired[Literal["calm", "wild"]]' in generate_types.python(described)
    assert 'mood?: "calm" | "wild";' in generate_types.typescript(described)
