"""What an answer to a hostile request must be: no failure, in the one form of errors, small, and without secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, Final

from attack.wire import Answer, Request

MOST_BYTES: Final = 64 * 1024
"""Of an error."""
_LEAKS: Final = re.compile(
    r"Traceback \(most recent|File \\?\"|site-packages|/(?:usr|root|home|tmp|proc|etc|var|opt)/[\w.-]+|\b[\w/]+\.py\b|"
    r"\b(?:serve_app|starlette|uvicorn|pydantic|hiredis|httpx2)\.|rediss?://|0x[0-9a-f]{8,}|<class '|object at"
)
"""Stack traces, paths, names of modules, addresses: what no client is to see."""
_OPENAI: Final = ("/v1/images/", "/v1/videos", "/v1/models")
"""Paths whose errors have another form."""
_ENTRY: Final = {"type", "loc", "msg"}
_SERVER: Final = 500


def wrong(request: Request, answer: Answer, secrets: Collection[str] = (), *, plain_400: bool = False) -> list[str]:
    """What is wrong about an answer, whatever it says. `plain_400`: no proxy stands before the app to word it."""
    found = []
    if answer.status >= _SERVER and not _is_documented(answer):
        found.append(f"HTTP {answer.status}")
    bare_400 = plain_400 and answer.status == 400 and answer.body == b"Invalid HTTP request received."
    if answer.status >= 400 and not bare_400:
        found += _misshapen(answer, openai=is_openai(request.target))
        if len(answer.body) > MOST_BYTES:
            found.append(f"an error of {len(answer.body)} bytes")
    return found + _leaks(request, answer, secrets)


def is_openai(target: str) -> bool:
    """Whether errors there are told as OpenAI tells them."""
    return target.startswith(_OPENAI)


def _is_documented(answer: Answer) -> bool:
    """503, and it says when to come again; or 504 to who waits for a picture, and it says not to."""
    if answer.status == 504:
        return answer.headers.get("x-should-retry") == "false"
    return answer.status == 503 and "retry-after" in answer.headers


_FIELDS = {"detail", "code", "hint", "request_id"}


def _misshapen(answer: Answer, *, openai: bool) -> list[str]:
    if answer.headers.get("content-type", "").partition(";")[0] != "application/json":
        return [f"an error in {answer.headers.get('content-type', 'no type at all')}"]
    try:
        body = json.loads(answer.body)
    except ValueError:
        return ["an error that is not JSON"]
    if openai:
        return [] if _is_envelope(body) else ["an error that is not in the form of OpenAI's"]
    if answer.status == 404 and isinstance(body, dict) and body.get("status") == "Task not found":
        return []
    if not isinstance(body, dict) or not {"detail", "code"} <= set(body) <= _FIELDS:
        return ["an error that is not in the form of errors"]
    if not _is_detail(body["detail"], answer.status):
        return ["an error that is not in the form of errors"]
    return []


def _is_envelope(body: Any) -> bool:
    told = body.get("error") if isinstance(body, dict) and len(body) == 1 else None
    return isinstance(told, dict) and set(told) == {"message", "type", "param", "code"} and bool(told["message"])


def _is_detail(detail: Any, status: int) -> bool:
    if status != 422:
        return isinstance(detail, str) and bool(detail)
    return isinstance(detail, list) and all(
        isinstance(entry, dict)
        and set(entry) >= _ENTRY
        and set(entry) <= _ENTRY | {"ctx"}
        and all(isinstance(part, str) for part in entry["loc"])
        for entry in detail
    )


def _leaks(request: Request, answer: Answer, secrets: Collection[str]) -> list[str]:
    """What the request itself said is no secret."""
    text = answer.text
    said = request.target + request.body[: 2**20].decode(errors="replace")
    found = [f"another's secret {secret[:12]}…" for secret in secrets if secret in text]
    if answer.status >= 400 and (leak := next((m[0] for m in _LEAKS.finditer(text) if m[0] not in said), None)):
        found.append(f"an error that tells {leak!r}")
    return found
