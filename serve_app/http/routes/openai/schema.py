"""Bodies of the routes that are OpenAI's: what is taken of a request, and what is answered.

A request takes two kinds of fields. Those named here are OpenAI's; any other is the own field of the endpoint that
`model` names, or is refused. What can't be honoured is refused, except a value that says what happens anyway. An
explicit null means the same as leaving a field out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from serve_app.http.model_states import State
from serve_app.http.routes import schemas
from serve_app.requests.fields import JSON_NUMBER, ImageInput

MAX_N = 10

Status: TypeAlias = Literal["queued", "in_progress", "completed", "failed"]

_Number = Annotated[int, Field(ge=1, le=MAX_N), JSON_NUMBER]
_Name = Annotated[str, Field(max_length=200)]
_Size = Annotated[str, Field(pattern="^(auto|[0-9]{1,5}x[0-9]{1,5})$")]


def _whole(value: Any) -> Any:
    """OpenAI's clients send seconds as a text."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10 else value


class Asked(BaseModel):
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


class ImageGeneration(Asked):
    n: _Number | None = Field(default=None, description="How many; each is a task of its own, with its own seed.")
    response_format: Literal["url", "b64_json"] | None = Field(default=None, description="`b64_json` when left out.")
    output_format: str | None = Field(default=None, description="`png` when left out; or `jpeg`, `webp`.")
    background: Literal["auto", "opaque", "transparent"] | None = Field(
        default=None, description="`transparent` where the endpoint can remove backgrounds; then as PNG."
    )
    quality: Literal["auto", "standard"] | None = Field(default=None, description="There is one quality.")
    moderation: Literal["auto"] | None = Field(default=None, description="See `safety_tolerance` of the endpoint.")
    stream: Literal[False] | None = Field(default=None, description="Nothing is streamed.")
    partial_images: Literal[0] | None = Field(default=None, description="Nothing is streamed.")


class ImageEdit(ImageGeneration):
    """`image` and `mask` come as files."""


class VideoCreation(Asked):
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
    state: State | None = Field(
        default=None, description="Whether a replica is there for it; null where that is not known"
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
    described: dict[int | str, dict[str, Any]] = {
        code: {"model": OpenAIErrorResponse, "description": meaning} for code, meaning in meanings.items()
    }
    # In place of the framework's 422, which these routes do not have.
    described["4XX"] = {"model": OpenAIErrorResponse, "description": "Any other error of the request"}
    return described
