"""What is wrong about an answer, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from attack import verdict
from attack.wire import Answer, Request

ASKED = Request("POST", "/v1/x", b'{"path": "/tmp/mine"}')
ENTRY = {"type": "missing", "loc": ["body"], "msg": "Field required"}


def answer(status: int, body: Any, kind: str = "application/json", **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {"content-type": kind, **named}, data, 0.1)


@pytest.mark.parametrize(
    "fine",
    [
        answer(200, b"\xff\xd8 a picture", "image/jpeg"),
        answer(200, {"anything": "/usr/lib"}),
        answer(204, b"", ""),
        answer(403, {"detail": "Not authenticated", "code": "some"}),
        answer(422, {"detail": [ENTRY, ENTRY | {"ctx": {"ge": 1}}], "code": "some"}),
        answer(422, {"detail": [ENTRY | {"msg": "no such file: /tmp/mine"}], "code": "some"}),
        answer(503, {"detail": "Come again", "code": "some"}, retry_after="2"),
        answer(404, {"id": "x", "status": "Task not found", "result": None}),
    ],
)
def test_nothing_is_wrong(fine: Answer) -> None:
    assert verdict.wrong(ASKED, fine) == []


TOLD = {"message": "No", "type": "invalid_request_error", "param": None, "code": "invalid_value"}


def test_paths_in_the_form_of_openai_have_errors_in_it() -> None:
    asked = Request("POST", "/v1/images/generations", b"{}")
    assert verdict.wrong(asked, answer(400, {"error": TOLD})) == []
    assert verdict.wrong(asked, answer(504, {"error": TOLD}, x_should_retry="false")) == []
    assert verdict.wrong(asked, answer(504, {"error": TOLD})) == ["HTTP 504"]
    (why,) = verdict.wrong(asked, answer(400, {"detail": "No", "code": "some"}))
    assert "OpenAI" in why
    (why,) = verdict.wrong(asked, answer(400, {"error": TOLD | {"trace": "x"}}))
    assert "OpenAI" in why


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (answer(500, {"detail": "Internal Server Error", "code": "some"}), "HTTP 500"),
        (answer(503, {"detail": "Come again", "code": "some"}), "HTTP 503"),
        (answer(400, b"<html>", "text/html"), "an error in text/html"),
        (answer(400, b"<html>"), "an error that is not JSON"),
        (answer(404, {"error": "x"}), "form of errors"),
        (answer(404, {"detail": "x", "trace": "y", "code": "some"}), "form of errors"),
        (answer(404, {"detail": [ENTRY], "code": "some"}), "form of errors"),
        (answer(422, {"detail": "x", "code": "some"}), "form of errors"),
        (answer(422, {"detail": [ENTRY | {"input": "x"}], "code": "some"}), "form of errors"),
        (answer(422, {"detail": [ENTRY | {"loc": ["body", 1], "code": "some"}]}), "form of errors"),
        (answer(422, {"detail": [ENTRY] * 5000, "code": "some"}), "bytes"),
        (answer(400, {"detail": "Traceback (most recent call last)", "code": "some"}), "Traceback"),
        (answer(400, {"detail": "no such file: /usr/share/x", "code": "some"}), "/usr/share"),
        (answer(400, {"detail": "serve_app/http/auth.py, line 3", "code": "some"}), "auth.py"),
        (answer(400, {"detail": "redis://127.0.0.1", "code": "some"}), "redis://"),
        (answer(200, {"key": "gen_another"}), "secret"),
    ],
)
def test_something_is_wrong(bad: Answer, why: str) -> None:
    (told,) = verdict.wrong(ASKED, bad, {"gen_another"})
    assert why in told


def test_without_a_proxy_a_broken_request_may_be_told_in_plain_text() -> None:
    plain = answer(400, b"Invalid HTTP request received.", "text/plain")
    assert verdict.wrong(ASKED, plain, plain_400=True) == []
    assert verdict.wrong(ASKED, plain) == ["an error in text/plain"]
