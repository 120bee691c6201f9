"""Every error a client can see: `{"detail": "<string>"}`, and for 422 a list of `{type, loc, msg}`.

No answer carries a stack trace, a path, or the value of what was sent: values may be secrets or pictures.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from obstore.exceptions import BaseError
from starlette.exceptions import HTTPException

from serve_app.accounts.segments import ArchiveOutOfReach
from serve_app.finetunes.refusals import OutOfReach
from serve_app.http import suggestions
from serve_app.http.methods import allowed
from serve_app.media.fetching import TooManyFetches
from serve_app.redis_store.connection import UNREACHABLE
from serve_app.submission.errors import FinetuneUnusable, Invalid, StorageOutOfReach
from serve_app.tasks.limits import Uncertain

Handler: TypeAlias = Callable[[Request, Exception], Awaitable[JSONResponse]]
Translate: TypeAlias = Callable[[Request, Exception, JSONResponse], JSONResponse]
"""From the request, the problem and its answer to that answer as some paths have it."""

logger = logging.getLogger(__name__)

OUT_OF_REACH = "The task store is out of reach, nothing was charged; try again shortly"
UNCERTAIN = (
    "The task store did not answer in time: the task was made, or it never will be. GET /v1/tasks tells which; "
    "a repetition with the same Idempotency-Key makes no second task"
)
_OBJECTS_OUT_OF_REACH = "The object store is out of reach; try again shortly"
_STORAGE_OUT_OF_REACH = "The object store is out of reach, nothing was accepted or charged; try again shortly"
SHORTLY = {"Retry-After": "2"}

_MOST_LISTED = 20
"""Problems of one request."""
_NAME_CHARS = 100
"""Of a field's name, which the client may have chosen."""
_MESSAGE_CHARS = 1000
"""Messages may repeat what was sent."""

_PLAIN_TYPES: Final = frozenset(("int_type", "float_type", "bool_type"))
_PLAIN: Final = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,10})?|true|false", re.IGNORECASE)
_IN_MESSAGE = {"error", "reason"}
"""Context that repeats what the message says."""


def install(app: FastAPI, translate: Translate | None = None) -> None:
    """Makes every error of `app` one of the contract's, or what `translate` makes of it."""
    handlers: dict[type[Exception], Handler] = {
        RequestValidationError: _validation,
        Invalid: _invalid,
        FinetuneUnusable: _finetune_unusable,
        StorageOutOfReach: _storage_out_of_reach,
        OutOfReach: _objects_out_of_reach,
        BaseError: _objects_out_of_reach,
        TooManyFetches: _too_many_fetches,
        HTTPException: _http,
        Exception: _internal,
        Uncertain: _uncertain,
        ArchiveOutOfReach: _archive_out_of_reach,
        **dict.fromkeys(UNREACHABLE, _unreachable),
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, _translated(handler, translate) if translate else handler)


def _translated(handler: Handler, translate: Translate) -> Handler:
    async def handle(request: Request, problem: Exception) -> JSONResponse:
        return translate(request, problem, await handler(request, problem))

    return handle


def unprocessable(entries: Sequence[Mapping[str, Any]]) -> JSONResponse:
    return JSONResponse({"detail": list(entries)}, status_code=422)


async def _validation(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, RequestValidationError)
    found = problem.errors()
    known = suggestions.fields_of(request, problem.body)
    entries = [_entry(error) for error in suggestions.for_fields(found[:_MOST_LISTED], known)]
    if more := len(found) - len(entries):
        entries.append({"type": "too_many_errors", "loc": ["body"], "msg": f"There are {more} more problems"})
    return unprocessable(entries)


async def _invalid(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, Invalid)
    return unprocessable([_shortened(problem.entry)])


async def _finetune_unusable(request: Request, problem: Exception) -> JSONResponse:
    return JSONResponse({"detail": "Finetune not found or not ready"}, status_code=400)


async def _too_many_fetches(request: Request, problem: Exception) -> JSONResponse:
    what = "Too many pictures and videos are being fetched for this organization, or from one of the origins"
    detail = f"{what}; nothing was charged; try again shortly"
    return JSONResponse({"detail": detail}, status_code=429, headers=SHORTLY)


async def _http(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, HTTPException)
    if isinstance(problem.__cause__, Invalid):
        # FastAPI takes whatever goes wrong while a body is read for an error of its own.
        return unprocessable([_shortened(problem.__cause__.entry)])
    if problem.status_code == 405:
        return _not_allowed(request, problem)
    if problem.status_code == 404 and "endpoint" not in request.scope:
        meant = suggestions.for_path(request.app, request.scope["path"])
        return JSONResponse({"detail": f"Not Found{meant}"}, status_code=404)
    return JSONResponse({"detail": problem.detail}, status_code=problem.status_code, headers=problem.headers)


def _not_allowed(request: Request, problem: HTTPException) -> JSONResponse:
    """Names the methods of all routes of the path; the framework knows of the first alone, and of files."""
    methods = ", ".join(allowed(request.app.routes, request.scope)) or (problem.headers or {}).get("Allow", "GET, HEAD")
    detail = f"Method Not Allowed: this path takes {methods}"
    return JSONResponse({"detail": detail}, status_code=405, headers={"Allow": methods})


async def _unreachable(request: Request, problem: Exception) -> JSONResponse:
    logger.warning("task store out of reach: %s", type(problem).__name__)
    return JSONResponse({"detail": OUT_OF_REACH}, status_code=503, headers=SHORTLY)


async def _uncertain(request: Request, problem: Exception) -> JSONResponse:
    logger.warning("the task store did not answer a submission: %s", type(problem.__cause__).__name__)
    return JSONResponse({"detail": UNCERTAIN}, status_code=503, headers=SHORTLY)


async def _storage_out_of_reach(request: Request, problem: Exception) -> JSONResponse:
    return JSONResponse({"detail": _STORAGE_OUT_OF_REACH}, status_code=503, headers=SHORTLY)


async def _objects_out_of_reach(request: Request, problem: Exception) -> JSONResponse:
    logger.warning("object store out of reach: %s", type(problem.__cause__ or problem).__name__)
    return JSONResponse({"detail": _OBJECTS_OUT_OF_REACH}, status_code=503, headers=SHORTLY)


async def _archive_out_of_reach(request: Request, problem: Exception) -> JSONResponse:
    logger.error("archive out of reach: %s", problem)
    detail = "What is this old can't be read at the moment; try again shortly"
    return JSONResponse({"detail": detail}, status_code=503, headers=SHORTLY)


async def _internal(request: Request, problem: Exception) -> JSONResponse:
    logger.error("unhandled error on %s %s", request.method, request.url.path, exc_info=problem)
    # The server drops the connection after such an error; a client that is not told trips over it on its next request.
    return JSONResponse({"detail": "Internal Server Error"}, status_code=500, headers={"Connection": "close"})


def _entry(error: Mapping[str, Any]) -> dict[str, Any]:
    """Pydantic's entry without the input's value; only plain context (bounds, patterns) stays, as far as it is news."""
    entry = _shortened({"type": error["type"], "loc": error["loc"], "msg": _cut(_message(error), _MESSAGE_CHARS)})
    context = {
        k: _cut(v, _MESSAGE_CHARS) if isinstance(v, str) else v
        for k, v in error.get("ctx", {}).items()
        if isinstance(v, (int, float, str)) and k not in _IN_MESSAGE
    }
    if context:
        entry["ctx"] = context
    return entry


def _message(error: Mapping[str, Any]) -> str:
    """Numbers and truth values in quotes are what form-like clients send: such a value is no secret, and repeated."""
    sent = error.get("input")
    if error["type"] in _PLAIN_TYPES and isinstance(sent, str) and _PLAIN.fullmatch(sent):
        return f'"{sent}" is a string; send {sent.lower()}'
    return error["msg"]


def _encodable(name: str) -> str:
    """JSON may name a field by half a character, which no answer can repeat."""
    return name.encode(errors="replace").decode()


def _shortened(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**entry, "loc": [_cut(_encodable(str(part)), _NAME_CHARS) for part in entry["loc"]]}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
