"""Error responses: `{"detail": "<string>", "code": …, "request_id": …}`.

`detail` is for people; in a 422 it is a list of `{type, loc, msg}`. `code` never changes. `request_id` is the value of
`x-request-id`, which the logs have as well. A `hint` says what to send instead.

No response has a stack trace, a path of the server, or a value of the request: values may be secrets or images.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import fastapi
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import iter_route_contexts
from obstore.exceptions import BaseError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from serve_app.api.middleware import allowed_methods
from serve_app.api.pages import not_found_page
from serve_app.finetunes.registry import ObjectStoreUnreachable
from serve_app.inputs.fetch import TooManyFetches
from serve_app.schemas import GenerationRequest
from serve_app.schemas.fields import advice, find_similar
from serve_app.storage.connection import UNREACHABLE
from serve_app.storage.refusals import StoreRefused
from serve_app.submission.errors import FinetuneUnusable, Invalid, StorageUnreachable
from serve_app.tasks.rejections import SubmissionUnknown

logger = logging.getLogger(__name__)

_VERSION: Final = "/v1/"


def suggest_path(app: FastAPI, path: str) -> str:
    """Returns `: did you mean …?`, or an empty text if no path is similar apart from its version."""
    paths = {each.removeprefix(_VERSION): each for each in _public_paths(app)}
    similar = find_similar(path.removeprefix(_VERSION), paths, likeness=0.75)
    return f": did you mean {paths[similar]}?" if similar else ""


def suggest_fields(errors: Iterable[Mapping[str, Any]], names: Collection[str]) -> list[dict[str, Any]]:
    """Appends the most similar name of `names` to Pydantic's errors about unknown fields."""

    def suffix(error: Mapping[str, Any]) -> str:
        unknown = error["type"] == "extra_forbidden"
        suggestion = advice(str(error["loc"][-1]), names) if unknown else None
        return f": {suggestion}" if suggestion else ""

    return [{**error, "msg": error["msg"] + suffix(error)} for error in errors]


def field_names(request: Request, body: Any) -> Collection[str]:
    """Returns the fields of the route's body; empty if it has none."""
    field = getattr(request.scope.get("route"), "body_field", None)
    form = field.field_info.annotation if field else None
    if not (isinstance(form, type) and issubclass(form, BaseModel)):
        return ()
    return form.field_names(body) if issubclass(form, GenerationRequest) else form.model_fields


def _public_paths(app: FastAPI) -> Iterable[str]:
    """Yields the documented paths without parameters that are not deprecated."""
    for route in iter_route_contexts(app.routes):
        is_public = getattr(route, "include_in_schema", False) and not getattr(route, "deprecated", None)
        if is_public and route.path and "{" not in route.path:
            yield route.path


Handler: TypeAlias = Callable[[Request, Exception], Awaitable[Response]]
Translate: TypeAlias = Callable[[Request, Exception, JSONResponse], JSONResponse]
"""Converts the response to a problem to another form, for some paths."""

STORE_UNREACHABLE = "The task store is out of reach, nothing was charged; try again shortly"
STORE_REFUSES = "The task store refuses requests; /readyz says why. Try again shortly"
OUTCOME_UNKNOWN = (
    "The task store did not answer in time. GET /v1/tasks shows whether the task exists: one that is not there will "
    "not appear later. A repeated request with the same Idempotency-Key creates no second task"
)
_OBJECTS_UNREACHABLE = "The object store is out of reach; try again shortly"
_STORAGE_UNREACHABLE = "The object store is out of reach, nothing was accepted or charged; try again shortly"
_TOO_MANY_FETCHES = (
    "Too many images and videos are being fetched for this organization, or from one of the origins; nothing was "
    "charged; try again shortly"
)
SHORTLY = {"Retry-After": "2"}

Code: TypeAlias = Literal[
    "bad_request",
    "body_too_large",
    "conflict",
    "error",
    "finetune_not_found",
    "finetune_not_ready",
    "forbidden",
    "gone",
    "insufficient_credits",
    "internal_error",
    "invalid_key",
    "invalid_request",
    "invalid_token",
    "link_expired",
    "method_not_allowed",
    "missing_key",
    "no_result",
    "not_found",
    "outcome_unknown",
    "permission_denied",
    "project_closed",
    "queue_full",
    "range_not_satisfiable",
    "rate_limited",
    "reply_unreadable",
    "request_in_progress",
    "request_timeout",
    "result_expired",
    "spending_limit_reached",
    "storage_unavailable",
    "store_full",
    "store_unavailable",
    "task_ended",
    "task_not_found",
    "too_many_active_tasks",
    "too_many_fetches",
    "too_many_uploads",
    "unavailable",
    "unknown_host",
]
"""Documented in docs/api.md. A code is never renamed."""

CODES: Final[Mapping[int, Code]] = {
    400: "bad_request",
    401: "invalid_token",
    402: "insufficient_credits",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    409: "conflict",
    410: "gone",
    413: "body_too_large",
    416: "range_not_satisfiable",
    421: "unknown_host",
    422: "invalid_request",
    429: "rate_limited",
    500: "internal_error",
    503: "unavailable",
}
"""Default codes by status."""

_MAX_PROBLEMS = 20
_MAX_NAME_CHARS = 100
_MAX_MESSAGE_CHARS = 1000

_PLAIN_TYPES: Final = frozenset(("int_type", "float_type", "bool_type"))
_PLAIN: Final = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,10})?|true|false", re.IGNORECASE)
_ENUM_MEMBER: Final = re.compile(r"<\w+\.\w+: ('[^']*')>")
"""The `repr` of an enum member, with the value that clients send."""
_IN_MESSAGE = {"error", "reason"}
"""Keys of context that repeat the message."""


class ApiError(fastapi.HTTPException):
    """An error whose code is not the default of its status."""

    def __init__(
        self,
        status: int,
        code: Code,
        detail: str,
        headers: Mapping[str, str] | None = None,
        *,
        hint: str | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}) or None)
        self.code: Code = code
        self.hint = hint


def install(app: FastAPI, translate: Translate | None = None) -> None:
    """Installs handlers for all errors of `app`. `translate` may convert their responses."""
    handlers: dict[type[Exception], Handler] = {
        RequestValidationError: _validation,
        Invalid: _invalid,
        FinetuneUnusable: _always(400, "finetune_not_ready", "Finetune not found or not ready"),
        StorageUnreachable: _always(503, "storage_unavailable", _STORAGE_UNREACHABLE),
        ObjectStoreUnreachable: _objects_unreachable,
        BaseError: _objects_unreachable,
        TooManyFetches: _always(429, "too_many_fetches", _TOO_MANY_FETCHES),
        HTTPException: _http,
        Exception: _internal,
        SubmissionUnknown: _outcome_unknown,
        **dict.fromkeys(UNREACHABLE, _unreachable),
    }
    for error_class, handler in handlers.items():
        app.add_exception_handler(error_class, _translate_with(handler, translate) if translate else handler)


def _translate_with(handler: Handler, translate: Translate) -> Handler:
    async def handle(request: Request, problem: Exception) -> Response:
        answer = await handler(request, problem)
        return translate(request, problem, answer) if isinstance(answer, JSONResponse) else answer

    return handle


def error_response(
    request: HTTPConnection,
    status: int,
    code: Code,
    detail: str | Sequence[Mapping[str, Any]],
    headers: Mapping[str, str] | None = None,
    hint: str | None = None,
) -> JSONResponse:
    body = {"detail": detail, "code": code}
    if hint:
        body["hint"] = hint
    if request_id := request.headers.get("x-request-id"):
        body["request_id"] = _cut(request_id, _MAX_NAME_CHARS)
    return JSONResponse(body, status, headers)


def http_error_response(
    request: HTTPConnection, problem: HTTPException, status: int | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Builds the response. `status` and `headers` override those of the problem."""
    code: Code = problem.code if isinstance(problem, ApiError) else CODES.get(problem.status_code) or "error"
    hint = problem.hint if isinstance(problem, ApiError) else None
    status, headers = status or problem.status_code, headers or problem.headers
    return error_response(request, status, code, problem.detail, headers, hint)


def _always(status: int, code: Code, detail: str) -> Handler:
    async def handle(request: Request, problem: Exception) -> JSONResponse:
        return error_response(request, status, code, detail, SHORTLY if status in (429, 503) else None)

    return handle


def _unprocessable(request: Request, entries: Sequence[Mapping[str, Any]]) -> JSONResponse:
    return error_response(request, 422, CODES[422], entries)


async def _validation(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, RequestValidationError)
    problems = problem.errors()
    names = field_names(request, problem.body)
    entries = [_entry(error) for error in suggest_fields(problems[:_MAX_PROBLEMS], names)]
    if more := len(problems) - len(entries):
        entries.append({"type": "too_many_errors", "loc": ["body"], "msg": f"There are {more} more problems"})
    return _unprocessable(request, entries)


async def _invalid(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, Invalid)
    return _unprocessable(request, [_shorten(problem.entry)])


async def _http(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    if isinstance(problem.__cause__, Invalid):
        # FastAPI replaces an error raised while a body is read by its own.
        return _unprocessable(request, [_shorten(problem.__cause__.entry)])
    if problem.status_code == 405:
        return _method_not_allowed(request, problem)
    if problem.status_code == 404 and "endpoint" not in request.scope:
        suggestion = suggest_path(request.app, request.scope["path"])
        if "text/html" in request.headers.get("accept", "") and not request.scope["path"].startswith(_VERSION):
            return not_found_page(suggestion)
        return error_response(request, 404, CODES[404], f"Not Found{suggestion}")
    return http_error_response(request, problem)


def _method_not_allowed(request: Request, problem: HTTPException) -> JSONResponse:
    """Names the methods of all routes of the path; the framework names those of the first route only."""
    methods = ", ".join(allowed_methods(request.app.routes, request.scope))
    methods = methods or (problem.headers or {}).get("Allow", "GET, HEAD")
    detail = f"Method Not Allowed: this path takes {methods}"
    return error_response(request, 405, CODES[405], detail, {"Allow": methods})


async def _unreachable(request: Request, problem: Exception) -> JSONResponse:
    if isinstance(problem, StoreRefused):
        logger.error("the task store refused %s %s: %s", request.method, request.url.path, problem)
        return error_response(request, 503, "store_unavailable", STORE_REFUSES, SHORTLY)
    logger.warning("task store out of reach: %s", type(problem).__name__)
    return error_response(request, 503, "store_unavailable", STORE_UNREACHABLE, SHORTLY)


async def _outcome_unknown(request: Request, problem: Exception) -> JSONResponse:
    logger.warning("the task store did not answer a submission: %s", type(problem.__cause__).__name__)
    return error_response(request, 503, "outcome_unknown", OUTCOME_UNKNOWN, SHORTLY)


async def _objects_unreachable(request: Request, problem: Exception) -> JSONResponse:
    logger.warning("object store out of reach: %s", type(problem.__cause__ or problem).__name__)
    return error_response(request, 503, "storage_unavailable", _OBJECTS_UNREACHABLE, SHORTLY)


async def _internal(request: Request, problem: Exception) -> JSONResponse:
    logger.error("unhandled error on %s %s", request.method, request.url.path, exc_info=problem)
    # The server drops the connection after such an error: without the header the client's next request would fail.
    return error_response(request, 500, CODES[500], "Internal Server Error", {"Connection": "close"})


def _entry(error: Mapping[str, Any]) -> dict[str, Any]:
    """Copies Pydantic's entry without the input's value. Of the context, only new plain values (bounds) remain."""
    entry = _shorten({"type": error["type"], "loc": error["loc"], "msg": _cut(_message(error), _MAX_MESSAGE_CHARS)})
    context = {
        key: _cut(_ENUM_MEMBER.sub(r"\1", value), _MAX_MESSAGE_CHARS) if isinstance(value, str) else value
        for key, value in error.get("ctx", {}).items()
        if isinstance(value, (int, float, str)) and key not in _IN_MESSAGE
    }
    if context:
        entry["ctx"] = context
    return entry


def _message(error: Mapping[str, Any]) -> str:
    """Returns the message; for a quoted number or boolean with the value, which can't be a secret."""
    value = error.get("input")
    if error["type"] in _PLAIN_TYPES and isinstance(value, str) and _PLAIN.fullmatch(value):
        return f'"{value}" is a string; send {value.lower()}'
    return _ENUM_MEMBER.sub(r"\1", error["msg"])


def _shorten(entry: Mapping[str, Any]) -> dict[str, Any]:
    # A name in JSON may have a lone surrogate, which can't be encoded.
    names = [str(part).encode(errors="replace").decode() for part in entry["loc"]]
    return {**entry, "loc": [_cut(name, _MAX_NAME_CHARS) for name in names]}


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
