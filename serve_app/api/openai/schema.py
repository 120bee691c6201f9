"""Schemas and errors of the OpenAI-style routes.

A request takes two kinds of fields. Those named here are OpenAI's; any other is the own field of the endpoint that
`model` names, or is refused. What can't be honoured is refused, except a value that says what happens anyway. A null,
an empty text, and a 0 that is no value of its field mean the same as leaving the field out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from serve_app.api.auth import NotAuthenticated
from serve_app.api.model_status import ModelState
from serve_app.api.routes import schemas
from serve_app.schemas.fields import JSON_NUMBER, ImageInput, zero_is_unset
from serve_app.tasks.rejections import SubmissionUnknown

MAX_N = 10

Status: TypeAlias = Literal["queued", "in_progress", "completed", "failed"]

_Number = Annotated[int, Field(ge=1, le=MAX_N), JSON_NUMBER]
_Name = Annotated[str, Field(max_length=200)]
_Size = Annotated[str, Field(pattern="^(auto|[0-9]{1,5}x[0-9]{1,5})$")]


def _whole(value: Any) -> Any:
    """OpenAI's clients send seconds as a text."""
    is_number = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10
    return zero_is_unset(int(value) if is_number else value)


class MediaRequest(BaseModel):
    """What all that make something take."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)

    model: _Name | None = Field(
        default=None,
        description="An endpoint by its name, with or without `gen-`. Left out: `openai.*_model`, else the catalog's "
        "first that does this.",
    )
    prompt: str = Field(description="As the endpoint takes it.", examples=["A lighthouse on a cliff at dawn"])
    size: _Size | None = Field(
        default=None, description="Width and height in pixels, or `auto`.", examples=["1024x1024"]
    )
    user: str | None = Field(default=None, description="Your own identifier of your end user.")
    safety_identifier: str | None = Field(default=None, description="The same; it goes before `user`.")

    @property
    def further(self) -> dict[str, Any]:
        """The endpoint's own fields, and whatever else was sent."""
        return {name: value for name, value in (self.model_extra or {}).items() if value is not None}


class ImageGeneration(MediaRequest):
    n: Annotated[_Number | None, BeforeValidator(zero_is_unset)] = Field(
        default=None, description="How many, 1 when left out; each is a task of its own, with its own seed."
    )
    response_format: Literal["url", "b64_json"] | None = Field(default=None, description="`b64_json` when left out.")
    output_format: str | None = Field(default=None, description="`png` when left out; or `jpeg`, `webp`.")
    background: Literal["auto", "opaque", "transparent"] | None = Field(
        default=None, description="`transparent` where the endpoint can remove backgrounds; then as PNG."
    )
    quality: Literal["auto", "standard"] | None = Field(default=None, description="There is one quality.")
    moderation: Literal["auto"] | None = Field(default=None, description="See `safety_tolerance` of the endpoint.")
    stream: Literal[False] | None = Field(default=None, description="Nothing is streamed.")
    output_compression: Literal[0, 100] | None = Field(default=None, description="There is one compression.")
    partial_images: Literal[0] | None = Field(default=None, description="Nothing is streamed.")


class ImageEdit(ImageGeneration):
    """`image` and `mask` come as files of a form, or in JSON as addresses, `data:` URIs or base64."""


class VideoCreation(MediaRequest):
    seconds: Annotated[int | None, BeforeValidator(_whole)] = Field(default=None, description="Whole seconds.")


class Reference(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    image_url: ImageInput = Field(description="An http(s) URL, or a `data:` URI.")


class Image(BaseModel):
    id: str = Field(description="The task's")
    url: str | None = Field(default=None, description="A signed link, which works for minutes")
    b64_json: str | None = None
    revised_prompt: str | None = Field(default=None, description="Where the prompt was rewritten")


class ImagesResponse(BaseModel):
    created: int = Field(description="Epoch seconds")
    data: list[Image]
    output_format: str


class VideoError(BaseModel):
    code: str
    message: str


class Video(BaseModel):
    id: str
    object: Literal["video"] = "video"
    model: str
    status: Status
    progress: int = Field(description="Percent")
    created_at: int = Field(description="Epoch seconds, as the others")
    completed_at: int | None = None
    expires_at: int | None = Field(default=None, description="Until when the video is kept")
    prompt: str | None = Field(default=None, description="Null where it can't be read any more")
    seconds: str
    size: str = Field(description="`auto` as long as the ratio is left to the prompt")
    error: VideoError | None = None


class VideoList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Video]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedVideo(BaseModel):
    id: str
    object: Literal["video.deleted"] = "video.deleted"
    deleted: bool = True


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int = Field(default=0, description="Always 0: it is not known")
    owned_by: str = "gen-serve"
    shutdown_date: str | None = Field(default=None, description="The day it stops answering, where that is decided")
    state: ModelState | None = Field(
        default=None, description="Whether a replica is there for it; null where that is not known"
    )
    demo: bool = Field(
        default=False, description="Whether a bundled demonstration model does it, which knows coloured shapes only"
    )
    predicted_wait_s: float | None = Field(
        default=None, description="How long a task submitted now would wait, seconds; null where none was ever done"
    )


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


class OpenAIError(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class OpenAIErrorResponse(BaseModel):
    error: OpenAIError


_MEANINGS = {
    400: "The request can't be done: the answer names the field",
    401: "Key missing, wrong, expired or revoked",
    403: "A key of a role that may not do this",
    429: "Too many requests or active tasks, the queue is full, or not enough credits",
    500: "The task failed, and cost nothing",
    504: "The task has not ended in time; it goes on, and the answer names it",
}


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The `responses=` of a route that may answer these; every one asks for a key and may find the store away."""
    meanings = {code: _MEANINGS.get(code) or schemas.MEANINGS[code] for code in (400, 401, 403, *codes, 503)}
    responses: dict[int | str, dict[str, Any]] = {
        code: {"model": OpenAIErrorResponse, "description": meaning} for code, meaning in meanings.items()
    }
    # In place of the framework's 422, which these routes do not have.
    responses["4XX"] = {"model": OpenAIErrorResponse, "description": "Any other error of the request"}
    return responses


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


def translate_error(request: Request, problem: Exception, answer: JSONResponse) -> JSONResponse:
    """What the service answers to `problem`, in the words of the path that was asked."""
    path = request.scope["path"]
    if not any(path == own or path.startswith(f"{own}/") for own in PATHS):
        return answer
    if isinstance(problem, Refusal):
        return _answer(problem.status_code, problem.body, problem.headers)
    headers = {name: value for name, value in answer.headers.items() if name not in ("content-length", "content-type")}
    if isinstance(problem, SubmissionUnknown):
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
    messages = [
        f"{param}: {entry['msg']}" if param else entry["msg"] for param, entry in zip(params, entries, strict=True)
    ]
    return _envelope("; ".join(messages), INVALID, _CODES.get(entries[0]["type"], "invalid_value"), params[0])


def _param(loc: list[str]) -> str | None:
    """Where in the request, as these clients would write it; None for the body as a whole."""
    return ".".join(loc[1:]) or None


def _envelope(message: str, kind: str, code: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _answer(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None) -> JSONResponse:
    return JSONResponse(body, status_code=status, headers=headers)
