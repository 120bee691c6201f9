"""Schemas and errors of the OpenAI-style routes.

The fields here are OpenAI's. Any other field must belong to the endpoint that `model` names. A field without support is
refused, unless its value asks for the default behaviour. A null, an empty text, and a 0 that is not a valid value count
as unset.
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
    """Converts a text to a number: OpenAI's clients send seconds as a text."""
    is_number = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10
    return zero_is_unset(int(value) if is_number else value)


class MediaRequest(BaseModel):
    """Common fields of images and videos."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)

    model: _Name | None = Field(
        default=None,
        description="Name of an endpoint, with or without `gen-`. Default: the setting `openai.*_model`, or the "
        "catalog's first suitable endpoint.",
    )
    prompt: str = Field(description="Prompt in the endpoint's format.", examples=["A lighthouse on a cliff at dawn"])
    size: _Size | None = Field(
        default=None, description="Width and height in pixels, or `auto`.", examples=["1024x1024"]
    )
    user: str | None = Field(default=None, description="Your identifier of your end user.")
    safety_identifier: str | None = Field(
        default=None, description="Your identifier of your end user; takes precedence over `user`."
    )

    @property
    def further(self) -> dict[str, Any]:
        """The other fields sent: those of the endpoint, and unknown ones."""
        return {name: value for name, value in (self.model_extra or {}).items() if value is not None}


class ImageGeneration(MediaRequest):
    n: Annotated[_Number | None, BeforeValidator(zero_is_unset)] = Field(
        default=None, description="Number of images, by default 1. Each is a task with its own seed."
    )
    response_format: Literal["url", "b64_json"] | None = Field(default=None, description="By default `b64_json`.")
    output_format: str | None = Field(default=None, description="`png` (default), `jpeg` or `webp`.")
    background: Literal["auto", "opaque", "transparent"] | None = Field(
        default=None, description="`transparent` needs an endpoint that can remove backgrounds, and PNG."
    )
    quality: Literal["auto", "standard"] | None = Field(default=None, description="There is only one quality.")
    moderation: Literal["auto"] | None = Field(default=None, description="See the endpoint's `safety_tolerance`.")
    stream: Literal[False] | None = Field(default=None, description="Streaming is not supported.")
    output_compression: Literal[0, 100] | None = Field(default=None, description="There is only one compression.")
    partial_images: Literal[0] | None = Field(default=None, description="Streaming is not supported.")


class ImageEdit(ImageGeneration):
    """Images and mask are files of a form, or in JSON http(s) URLs, `data:` URIs or base64."""


class VideoCreation(MediaRequest):
    seconds: Annotated[int | None, BeforeValidator(_whole)] = Field(default=None, description="Whole seconds.")


class ImageReference(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    image_url: ImageInput = Field(description="An http(s) URL, or a `data:` URI.")


class OpenAIImage(BaseModel):
    id: str = Field(description="Id of the task")
    url: str | None = Field(default=None, description="Signed link, valid for minutes")
    b64_json: str | None = None
    revised_prompt: str | None = Field(default=None, description="The prompt, if it was rewritten")


class ImagesResponse(BaseModel):
    created: int = Field(description="Epoch seconds")
    data: list[OpenAIImage]
    output_format: str


class VideoFailure(BaseModel):
    code: str
    message: str


class Video(BaseModel):
    id: str
    object: Literal["video"] = "video"
    model: str
    status: Status
    progress: int = Field(description="Percent")
    created_at: int = Field(description="Epoch seconds, like the other times")
    completed_at: int | None = None
    expires_at: int | None = Field(default=None, description="Time of deletion")
    prompt: str | None = Field(default=None, description="Null if it can no longer be read")
    seconds: str
    size: str = Field(description="`auto` while the prompt has yet to decide the ratio")
    error: VideoFailure | None = None


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


class OpenAIModel(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int = Field(default=0, description="Always 0: unknown")
    owned_by: str = "gen-serve"
    shutdown_date: str | None = Field(default=None, description="Day of the endpoint's shutdown, if announced")
    state: ModelState | None = Field(default=None, description="State of the model's replicas; null if unknown")
    demo: bool = Field(
        default=False, description="True for the bundled demonstration model, which only knows coloured shapes"
    )
    predicted_wait_s: float | None = Field(
        default=None, description="Estimated wait of a new task in seconds; null before the first finished task"
    )


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class OpenAIError(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class OpenAIErrorResponse(BaseModel):
    error: OpenAIError


_MEANINGS = {
    400: "Invalid request: the response names the field",
    401: "API key missing, wrong, expired or revoked",
    403: "The role of the API key does not permit this",
    429: "Too many requests or active tasks, the queue is full, or not enough credits",
    500: "The task failed, at no cost",
    504: "The task did not finish in time and continues; the response names it",
}


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Returns the `responses=` of a route with these error codes, and those that every route has."""
    meanings = {code: _MEANINGS.get(code) or schemas.MEANINGS[code] for code in (400, 401, 403, *codes, 503)}
    responses: dict[int | str, dict[str, Any]] = {
        code: {"model": OpenAIErrorResponse, "description": meaning} for code, meaning in meanings.items()
    }
    # Replaces the framework's 422, which these routes never return.
    responses["4XX"] = {"model": OpenAIErrorResponse, "description": "Any other error of the request"}
    return responses


PATHS: Final = ("/v1/images", "/v1/videos", "/v1/models")
"""Paths whose errors, and those of the paths below, have OpenAI's form."""

INVALID: Final = "invalid_request_error"
SERVER: Final = "server_error"
NO_RETRY: Final = {"x-should-retry": "false"}
"""Header against automatic retries of OpenAI's clients, which could cost twice."""

_CODES: Final[Mapping[str, str]] = {
    "missing": "missing_required_parameter",
    "extra_forbidden": "unknown_parameter",
}
"""Codes by type of validation error; all others are `invalid_value`."""
_TYPES: Final[Mapping[int, tuple[str, str]]] = {
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
"""Default type and code by status."""


class Refusal(HTTPException):
    """An error with OpenAI's type and code."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        *,
        error_type: str = INVALID,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.body = _envelope(message, error_type, code, param)


def translate_error(request: Request, problem: Exception, answer: JSONResponse) -> JSONResponse:
    """Translates the service's error response to OpenAI's form, if the path has that form."""
    path = request.scope["path"]
    if not any(path == each or path.startswith(f"{each}/") for each in PATHS):
        return answer
    if isinstance(problem, Refusal):
        return _answer(problem.status_code, problem.body, problem.headers)
    headers = {name: value for name, value in answer.headers.items() if name not in ("content-length", "content-type")}
    if isinstance(problem, SubmissionUnknown):
        headers |= NO_RETRY
    detail = json.loads(bytes(answer.body))["detail"]
    if isinstance(detail, list):
        return _answer(400, _invalid(detail), headers)
    if answer.status_code == 402:
        return _answer(429, _envelope(detail, "insufficient_quota", "insufficient_quota"), headers | NO_RETRY)
    status = 401 if isinstance(problem, NotAuthenticated) else answer.status_code
    error_type, code = _TYPES.get(status, (SERVER, "server_error") if status >= 500 else (INVALID, "invalid_request"))
    return _answer(status, _envelope(detail, error_type, code), headers)


def _invalid(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Joins all problems to one message. `param` and `code` are those of the first."""
    params = [".".join(entry["loc"][1:]) or None for entry in entries]
    messages = [
        f"{param}: {entry['msg']}" if param else entry["msg"] for param, entry in zip(params, entries, strict=True)
    ]
    return _envelope("; ".join(messages), INVALID, _CODES.get(entries[0]["type"], "invalid_value"), params[0])


def _envelope(message: str, error_type: str, code: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": error_type, "param": param, "code": code}}


def _answer(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None) -> JSONResponse:
    return JSONResponse(body, status_code=status, headers=headers)
