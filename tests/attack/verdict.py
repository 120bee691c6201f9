"""What an answer to a hostile request must be: no failure, in the one form of errors, small, and without secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, Final

from attack.wire import Answer, Request

_MOST_BYTES: Final = 64 * 1024
"""Of an error."""
_LEAKS: Final = re.compile(
    r"Traceback \(most recent|File \\?\"|site-packages|/(?:usr|root|home|tmp|proc|etc|var|opt)/[\w.-]+|\b[\w/]+\.py\b|"
    r"\b(?:serve_app|starlette|uvicorn|pydantic|hiredis|httpx2)\.|rediss?://|0x[0-9a-f]{8,}|<class '|object at"
)
"""Stack traces, paths, names of modules, addresses: what no client is to see."""
_NO_HTTP: Final = (
    b"Invalid HTTP request received.",
    b"<html><body><h1>400 Bad request</h1>\nYour browser sent an invalid",
)
_OPENAI: Final = ("/v1/images/", "/v1/videos", "/v1/models")
"""Paths whose errors have another form."""


def wrong(request: Request, answer: Answer, secrets: Collection[str] = (), *, plain_400: bool = False) -> list[str]:
    """What is wrong about an answer, whatever it says. `plain_400`: the request may be no HTTP, of which the app never
    hears: proxy or server may word the refusal."""
    said = request.target + request.body[: 2**20].decode(errors="replace")  # which is no secret
    found = [f"another's secret {secret[:12]}…" for secret in secrets if secret in answer.text]
    if answer.status < 400 or (plain_400 and answer.status == 400 and answer.body.startswith(_NO_HTTP)):
        return found
    if answer.status >= 500 and not _says_when_to_come(answer):
        found.append(f"HTTP {answer.status}")
    if not _is_error(answer, openai=request.target.startswith(_OPENAI)):
        found.append(f"HTTP {answer.status} in another form than that of errors: {answer.text[:80]}")
    if len(answer.body) > _MOST_BYTES:
        found.append(f"an error of {len(answer.body)} bytes")
    leaks = [leak[0] for leak in _LEAKS.finditer(answer.text) if leak[0] not in said]
    return found + [f"an error that tells {leak!r}" for leak in leaks[:1]]


def _says_when_to_come(answer: Answer) -> bool:
    """503, and it says when to come again; or 504 to who waits for a picture, and it says not to."""
    not_again = answer.status == 504 and answer.headers.get("x-should-retry") == "false"
    return not_again or (answer.status == 503 and "retry-after" in answer.headers)


def _is_error(answer: Answer, *, openai: bool) -> bool:
    try:
        body: Any = json.loads(answer.body)
    except ValueError:
        return False
    if answer.headers.get("content-type", "").partition(";")[0] != "application/json" or not isinstance(body, dict):
        return False
    if openai:
        return set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    if answer.status == 404 and body.get("status") == "Task not found":
        return True
    detail: Any = body.get("detail")
    well_formed = {"detail", "code"} <= set(body) <= {"detail", "code", "hint", "request_id"}
    return well_formed and (isinstance(detail, str) if answer.status != 422 else all(map(_is_entry, detail)))


def _is_entry(entry: Any) -> bool:
    keys = {"type", "loc", "msg"}
    return keys <= set(entry) <= keys | {"ctx"} and all(isinstance(part, str) for part in entry["loc"])
