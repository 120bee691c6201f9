"""Types and response bodies that several routes share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, SecretStr

from serve_app.tasks.task import Status


def _is_text(secret: SecretStr) -> SecretStr:
    """Raises ValueError for halves of surrogate pairs, which are JSON."""
    try:
        secret.get_secret_value().encode()
    except UnicodeEncodeError:
        raise ValueError("this is no text") from None
    return secret


Secret = Annotated[SecretStr, AfterValidator(_is_text)]


class ErrorResponse(BaseModel):
    detail: str = Field(description="What is wrong, for people")
    code: str = Field(description="What is wrong, for programs; never changes")
    hint: str | None = Field(default=None, description="What to send instead, where that can be said")
    request_id: str | None = Field(default=None, description="As in the header `x-request-id`, and in the logs")


class ValidationErrorEntry(BaseModel):
    type: str = Field(description="What is wrong, for programs")
    loc: list[str] = Field(description="Where: `body`, `query`, `path` or `header`, then names of fields")
    msg: str = Field(description="What is wrong, for people")
    ctx: dict[str, Any] | None = Field(default=None, description="Bounds that were passed")


class ValidationErrorResponse(BaseModel):
    detail: list[ValidationErrorEntry]
    code: str = Field(description="`invalid_request`")
    request_id: str | None = Field(default=None, description="As in the header `x-request-id`, and in the logs")


MEANINGS = {
    400: "No such tuned model, or not ready",
    401: "The bearer token is refused; the answer says why",
    402: "Not enough credits, or a spending limit reached",
    403: "Key missing, wrong, expired or revoked, or of a role that may not do this",
    404: "Not found",
    408: "The file came too slowly",
    409: "Not possible in the present state",
    413: "Request body too large",
    429: "Too many requests or active tasks, or the queue is full; see `Retry-After`",
    500: "The report could not be processed, and was not counted",
    503: "The task store or the object store is out of reach, or too much is on its way; see `Retry-After`",
}


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The `responses=` of a route that may answer these, beside 422; where keys may be refused, so may tokens."""
    all_codes = (401, *codes) if 403 in codes else codes
    described: dict[int | str, dict[str, Any]] = {
        code: {"model": ErrorResponse, "description": MEANINGS[code]} for code in all_codes
    }
    described[422] = {"model": ValidationErrorResponse, "description": "The request failed validation"}
    return described


class Submission(BaseModel):
    """An accepted task."""

    id: str
    polling_url: str
    cost: float | None = Field(description="Cost in credits")
    input_mp: float | None = Field(description="Megapixels of 2^20 pixels of what was sent, 2 decimals; no masks")
    output_mp: float | None = Field(
        description="Megapixels of 2^20 pixels of what will be delivered, 2 decimals; of the tier where the prompt "
        "decides on the ratio"
    )
    status: str | None = Field(default=None, description="`Pending`; only with a webhook")
    webhook_url: str | None = Field(default=None, description="Only with a webhook")
    warnings: list[str] | None = Field(
        default=None,
        description="What of the request can't be done, though it was accepted; `details` says so beside the result, "
        "too. Left out where there is nothing to say",
    )


class TaskResult(BaseModel):
    """What polling answers."""

    id: str
    status: Status
    result: dict[str, Any] | None = None
    progress: float | None = Field(default=None, description="0.0 to 1.0, never falls; null when not known")
    details: dict[str, Any] | None = Field(
        default=None,
        description="`Moderation Reasons`, `error`, or beside a result `warnings`: what of it could not be done",
    )
    preview: dict[str, Any] | None = None
    cost: float | None = Field(default=None, description="Settled cost in credits, once known")


class TaskSummary(BaseModel):
    id: str
    endpoint: str
    status: Status
    prompt: str | None = Field(description="As it was sent; of a long one how it begins. Null where it can't be read")
    thumbnail: str | None = Field(
        description="Link to a small picture of the result, or of how far it is; null where there is none"
    )
    progress: float | None = Field(description="0.0 to 1.0; null when not known")
    attempt: int = Field(description="How often work on the task was begun")
    created: float = Field(description="Epoch seconds")
    started: float | None
    finished: float | None
    cost: float | None = Field(description="Settled cost in credits, once known")


class DeliveryAttempt(BaseModel):
    at: float = Field(description="Epoch seconds")
    status: int | None = Field(description="HTTP status of the receiver's answer; null when there was none")
    error: str | None = Field(description="Why there was no answer")
    response: str | None = Field(description="How the answer's body begins, at most 1 KiB")
    took_s: float = Field(description="Seconds from connecting to the answer")


class TaskDelivery(BaseModel):
    """How a task's webhook fares."""

    id: str = Field(description="The task's; every attempt carries it as `webhook-id`")
    receiver: str = Field(description="Scheme, host and port of `webhook_url`, whose other parts may be secrets")
    state: Literal["not due", "waiting", "sending", "delivered", "failed"] = Field(
        description="`not due` until the task ends; `failed` once no more attempts follow"
    )
    next: float | None = Field(description="When the next attempt is due, epoch seconds")
    attempts: list[DeliveryAttempt] = Field(description="The latest 50, oldest first")


class TaskPage(BaseModel):
    tasks: list[TaskSummary]
    next: str | None = Field(
        description="Cursor of the next page; null on the last one. With filters a page may have fewer tasks than "
        "`limit`, and others follow"
    )
