"""Errors as OpenAI's clients know them: `{"error": {message, type, param, code}}`, with the statuses of that interface.

They are those of all other routes, told in other words, and only on these paths.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse

from serve_app.http.auth import NotAuthenticated
from serve_app.tasks.limits import Uncertain

PATHS: Final = ("/v1/images", "/v1/videos", "/v1/models")
"""Whatever is at or below these speaks like this."""

INVALID: Final = "invalid_request_error"
SERVER: Final = "server_error"
FOR_GOOD: Final = {"x-should-retry": "false"}
"""OpenAI's clients try again by themselves where a status allows it, which may cost twice; not with this header."""

_CODES: Final[Mapping[str, str]] = {
    "missing": "missing_required_parameter",
    "extra_forbidden": "unknown_parameter",
}
"""By the type of a validation error; of all others the value is wrong."""
_KINDS: Final[Mapping[int, tuple[str, str]]] = {
    400: (INVALID, "invalid_request"),
    401: (INVALID, "invalid_api_key"),
    403: ("permission_error", "insufficient_permissions"),
    404: (INVALID, "not_found"),
    405: (INVALID, "method_not_allowed"),
    408: (INVALID, "request_timeout"),
    409: (INVALID, "conflict"),
    413: (INVALID, "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: (SERVER, "service_unavailable"),
}
"""Type and code of what has none of its own, by status."""


class Refusal(HTTPException):
    """An error that is told as it is given here."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        *,
        kind: str = INVALID,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.body = _envelope(message, kind, code, param)


def translated(request: Request, problem: Exception, answer: JSONResponse) -> JSONResponse:
    """What the service answers to `problem`, in the words of the path that was asked."""
    path = request.scope["path"]
    if not any(path == own or path.startswith(f"{own}/") for own in PATHS):
        return answer
    if isinstance(problem, Refusal):
        return _answer(problem.status_code, problem.body, problem.headers)
    headers = {name: value for name, value in answer.headers.items() if name not in ("content-length", "content-type")}
    if isinstance(problem, Uncertain):
        headers |= FOR_GOOD
    detail = json.loads(bytes(answer.body))["detail"]
    if isinstance(detail, list):
        return _answer(400, _invalid(detail), headers)
    if answer.status_code == 402:
        return _answer(429, _envelope(detail, "insufficient_quota", "insufficient_quota"), headers | FOR_GOOD)
    status = 401 if isinstance(problem, NotAuthenticated) else answer.status_code
    kind, code = _KINDS.get(status, (SERVER, "server_error") if status >= 500 else (INVALID, "invalid_request"))
    return _answer(status, _envelope(detail, kind, code), headers)


def _invalid(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """All problems in one message; `param` and `code` are those of the first."""
    params = [_param(entry["loc"]) for entry in entries]
    told = [f"{param}: {entry['msg']}" if param else entry["msg"] for param, entry in zip(params, entries, strict=True)]
    return _envelope("; ".join(told), INVALID, _CODES.get(entries[0]["type"], "invalid_value"), params[0])


def _param(loc: list[str]) -> str | None:
    """Where in the request, as these clients would write it; None for the body as a whole."""
    return ".".join(loc[1:]) or None


def _envelope(message: str, kind: str, code: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _answer(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None) -> JSONResponse:
    return JSONResponse(body, status_code=status, headers=headers)
