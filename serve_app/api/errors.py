"""Error responses: `{"detail": "<string>", "code": …, "request_id": …}`.

`detail` is for people; of a 422 it is a list of `{type, loc, msg}`. `code` never changes. `request_id` is that of the
header `x-request-id`, and in the logs. A `hint` says what to send instead.

No answer carries a stack trace, a path, or the value of what was sent: values may be secrets or images.
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
    """`: did you mean …?`, or nothing where no path is near. What most paths begin with does not count."""
    paths = {each.removeprefix(_VERSION): each for each in _paths(app)}
    near = find_similar(path.removeprefix(_VERSION), paths, likeness=0.75)
    return f": did you mean {paths[near]}?" if near else ""


def suggest_fields(errors: Iterable[Mapping[str, Any]], names: Collection[str]) -> list[dict[str, Any]]:
    """Pydantic's errors, where those about unknown fields name the one of `names` that may have been meant."""
    return [{**error, "msg": error["msg"] + _for_field(error, names)} for error in errors]


def field_names(request: Request, body: Any) -> Collection[str]:
    """What may be in a body like this one, by the route that it was sent to."""
    field = getattr(request.scope.get("route"), "body_field", None)
    form = field.field_info.annotation if field else None
    if not (isinstance(form, type) and issubclass(form, BaseModel)):
        return ()
    return form.field_names(body) if issubclass(form, GenerationRequest) else form.model_fields


def _for_field(error: Mapping[str, Any], names: Collection[str]) -> str:
    name = str(error["loc"][-1])
    if error["type"] != "extra_forbidden":
        return ""
    suggestion = advice(name, names)
    return f": {suggestion}" if suggestion else ""


def _paths(app: FastAPI) -> Iterable[str]:
    """Those that are described and here to stay, without parameters."""
    for route in iter_route_contexts(app.routes):
        is_public = getattr(route, "include_in_schema", False) and not getattr(route, "deprecated", None)
        if is_public and route.path and "{" not in route.path:
            yield route.path


Handler: TypeAlias = Callable[[Request, Exception], Awaitable[Response]]
Translate: TypeAlias = Callable[[Request, Exception, JSONResponse], JSONResponse]
"""From the request, the problem and its answer to that answer as some paths have it."""


STORE_UNREACHABLE = "The task store is out of reach, nothing was charged; try again shortly"
STORE_REFUSES = "The task store refuses what it is asked to do; /readyz says why. Try again shortly"
UNCERTAIN = (
    "The task store did not answer in time: the task was made, or it never will be. GET /v1/tasks tells which; "
    "a repetition with the same Idempotency-Key makes no second task"
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
"""Of errors that have no code of their own, by status."""

_MAX_PROBLEMS = 20
"""Problems of one request."""
_NAME_CHARS = 100
"""Of a field's name, which the client may have chosen."""
_MESSAGE_CHARS = 1000
"""Messages may repeat what was sent."""

_PLAIN_TYPES: Final = frozenset(("int_type", "float_type", "bool_type"))
_PLAIN: Final = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,10})?|true|false", re.IGNORECASE)
_ENUM_MEMBER: Final = re.compile(r"<\w+\.\w+: ('[^']*')>")
"""A member of an enumeration as Python prints it; its value is what clients send."""
_IN_MESSAGE = {"error", "reason"}
"""Context that repeats what the message says."""


class ApiError(fastapi.HTTPException):
    """An error with a code of its own."""

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
    """Makes every error of `app` one of the contract's, or what `translate` makes of it."""
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
        SubmissionUnknown: _uncertain,
        **dict.fromkeys(UNREACHABLE, _unreachable),
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, _translate_with(handler, translate) if translate else handler)


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
        body["request_id"] = _cut(request_id, _NAME_CHARS)
    return JSONResponse(body, status, headers)


def http_error_response(
    request: HTTPConnection, problem: HTTPException, status: int | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """`status` and `headers` go before the problem's own."""
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
        # FastAPI takes whatever goes wrong while a body is read for an error of its own.
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
    """Names the methods of all routes of the path; the framework knows of the first alone, and of files."""
    methods = ", ".join(allowed_methods(request.app.routes, request.scope)) or (problem.headers or {}).get(
        "Allow", "GET, HEAD"
    )
    detail = f"Method Not Allowed: this path takes {methods}"
    return error_response(request, 405, CODES[405], detail, {"Allow": methods})


async def _unreachable(request: Request, problem: Exception) -> JSONResponse:
    if isinstance(problem, StoreRefused):
        logger.error("the task store refused %s %s: %s", request.method, request.url.path, problem)
        return error_response(request, 503, "store_unavailable", STORE_REFUSES, SHORTLY)
    logger.warning("task store out of reach: %s", type(problem).__name__)
    return error_response(request, 503, "store_unavailable", STORE_UNREACHABLE, SHORTLY)


async def _uncertain(request: Request, problem: Exception) -> JSONResponse:
    logger.warning("the task store did not answer a submission: %s", type(problem.__cause__).__name__)
    return error_response(request, 503, "outcome_unknown", UNCERTAIN, SHORTLY)


async def _objects_unreachable(request: Request, problem: Exception) -> JSONResponse:
    logger.warning("object store out of reach: %s", type(problem.__cause__ or problem).__name__)
    return error_response(request, 503, "storage_unavailable", _OBJECTS_UNREACHABLE, SHORTLY)


async def _internal(request: Request, problem: Exception) -> JSONResponse:
    logger.error("unhandled error on %s %s", request.method, request.url.path, exc_info=problem)
    # The server drops the connection after such an error; a client that is not told trips over it on its next request.
    return error_response(request, 500, CODES[500], "Internal Server Error", {"Connection": "close"})


def _entry(error: Mapping[str, Any]) -> dict[str, Any]:
    """Pydantic's entry without the input's value; only plain context (bounds, patterns) stays, as far as it is news."""
    entry = _shorten({"type": error["type"], "loc": error["loc"], "msg": _cut(_message(error), _MESSAGE_CHARS)})
    context = {
        k: _cut(_ENUM_MEMBER.sub(r"\1", v), _MESSAGE_CHARS) if isinstance(v, str) else v
        for k, v in error.get("ctx", {}).items()
        if isinstance(v, (int, float, str)) and k not in _IN_MESSAGE
    }
    if context:
        entry["ctx"] = context
    return entry


def _message(error: Mapping[str, Any]) -> str:
    """Numbers and truth values in quotes are what form-like clients send: such a value is no secret, and repeated."""
    value = error.get("input")
    if error["type"] in _PLAIN_TYPES and isinstance(value, str) and _PLAIN.fullmatch(value):
        return f'"{value}" is a string; send {value.lower()}'
    return _ENUM_MEMBER.sub(r"\1", error["msg"])


def _encodable(name: str) -> str:
    """JSON may name a field by half a character, which no answer can repeat."""
    return name.encode(errors="replace").decode()


def _shorten(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**entry, "loc": [_cut(_encodable(str(part)), _NAME_CHARS) for part in entry["loc"]]}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
