"""Types and response bodies that several routes share, and responses to rejected submissions."""

from __future__ import annotations

import hashlib
import math
import re
import time
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import HTTPException
from pydantic import AfterValidator, BaseModel, Field, SecretStr

from serve_app.accounts.credits import format_credits
from serve_app.api.errors import SHORTLY, STORE_UNREACHABLE, ApiError, Code
from serve_app.api.services import Services
from serve_app.config.catalog import Endpoint
from serve_app.config.settings import ServiceSettings
from serve_app.storage.tally import CounterName
from serve_app.submission.errors import Invalid
from serve_app.tasks.limits import Limits
from serve_app.tasks.rejections import (
    IdempotencyMismatch,
    InsufficientCredits,
    ProjectClosed,
    QueueFull,
    RateLimited,
    ReplyUnreadable,
    RequestInProgress,
    SpendingLimitReached,
    StoreFull,
    SubmitExpired,
    TaskRejected,
    TooManyActive,
    TooManyUploads,
)
from serve_app.tasks.task import Status


def _is_text(secret: SecretStr) -> SecretStr:
    """Raises ValueError for unpaired surrogates, which JSON allows."""
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
    """Returns the `responses=` of a route with these codes and 422. 403 adds 401: a key may be a token instead."""
    all_codes = (401, *codes) if 403 in codes else codes
    responses: dict[int | str, dict[str, Any]] = {
        code: {"model": ErrorResponse, "description": MEANINGS[code]} for code in all_codes
    }
    responses[422] = {"model": ValidationErrorResponse, "description": "The request failed validation"}
    return responses


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
    """Status of a task and, once it is `Ready`, its result."""

    id: str
    status: Status
    result: dict[str, Any] | None = None
    progress: float | None = Field(default=None, description="0.0 to 1.0, never falls; null when not known")
    details: dict[str, Any] | None = Field(
        default=None,
        description="Until the end, as far as known: `eta`, seconds until the result, `eta_range`, which holds it four "
        "times in five, `queue_position` (1 is next) while the task waits, a `message` while its model starts. Then "
        "`Moderation Reasons`, `error`, or beside a result `warnings`: what of it could not be done",
    )
    preview: dict[str, Any] | None = None
    cost: float | None = Field(default=None, description="Settled cost in credits, once known")


def conceal_id(task_id: str) -> str:
    """Returns the substitute for a task's id to callers who may not read its result: the id alone opens it."""
    return f"sha256:{hashlib.sha256(task_id.encode()).hexdigest()[:16]}"


class TaskSummary(BaseModel):
    id: str
    endpoint: str
    status: Status
    prompt: str | None = Field(description="As it was sent; of a long one how it begins. Null where it can't be read")
    thumbnail: str | None = Field(
        description="Link to a small image of the result, or of how far it is; null where there is none"
    )
    progress: float | None = Field(description="0.0 to 1.0; null when not known")
    attempt: int = Field(description="How often work on the task was begun")
    created: float = Field(description="Epoch seconds")
    started: float | None
    finished: float | None
    expires: float | None = Field(description="When it is deleted; null before its end")
    cost: float | None = Field(description="Settled cost in credits, once known")


class TaskDetails(TaskSummary):
    prompt: str | None = Field(description="As it was sent, whole. Null where it can't be read")
    parameters: dict[str, str | int | float | bool] = Field(
        description="How it is made, as far as that was asked for or is known: `width`, `height`, `steps`, `seed` …"
    )
    inputs: int = Field(description="How many images and videos were sent")
    shared: bool = Field(description="Whether it has links to a page that were not revoked")


class DeliveryAttempt(BaseModel):
    at: float = Field(description="Epoch seconds")
    status: int | None = Field(description="HTTP status of the destination's answer; null when there was none")
    error: str | None = Field(description="Why there was no answer")
    response: str | None = Field(description="How the answer's body begins, at most 1 KiB")
    took_s: float = Field(description="Seconds from connecting to the answer")


class TaskDelivery(BaseModel):
    """State of a task's webhook."""

    id: str = Field(description="The task's; every attempt carries it as `webhook-id`")
    destination: str = Field(description="Scheme, host and port of `webhook_url`, whose other parts may be secrets")
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


PROJECT_CLOSED: Final = "Not allowed: this project is closed"

_SWEEP_S = 30
"""Seconds until a sweep has freed memory; it runs every few seconds."""
_SOON = 5
"""Seconds until a retry, if no better value is known."""


def rejection_error(refusal: TaskRejected, endpoint: str, services: Services) -> Exception:
    """Returns the exception that answers the client. Counts it for the metrics."""
    services.tally.count(CounterName.REFUSALS, f"{_reason(refusal)} {endpoint}")
    limits = services.tasks.store.limits
    match refusal:
        case IdempotencyMismatch():
            message = "This Idempotency-Key was used with another request body in the last 24 hours"
            return Invalid(["header", "Idempotency-Key"], message, "idempotency_key_reused")
        case RequestInProgress():
            message = "The first request with this Idempotency-Key is still being handled; send it again shortly"
            return ApiError(409, "request_in_progress", message, {"Retry-After": "1"})
        case ReplyUnreadable():
            message = "The first reply to this Idempotency-Key can't be read any more; its task is among GET /v1/tasks"
            return ApiError(409, "reply_unreadable", message)
        case ProjectClosed():
            return ApiError(403, "project_closed", PROJECT_CLOSED)
        case InsufficientCredits():
            return HTTPException(402, "Insufficient credits")
        case SpendingLimitReached():
            headers = {"Retry-After": _seconds(refusal.resets - time.time())}
            return ApiError(402, "spending_limit_reached", _spending_message(refusal), headers)
        case RateLimited(wait_s=wait_s):
            headers = {"Retry-After": _seconds(wait_s), **rate_limit_headers(limits, remaining=0, wait_s=wait_s)}
            return HTTPException(
                429, f"Too many requests: this key may send {limits.requests_per_s:g} a second", headers
            )
        case TooManyUploads(wait_s=wait_s):
            message = (
                f"Too many uploads: this project may have {limits.max_uploads} of {limits.max_uploads_mb} MiB together "
                "at a time; name their size, or wait until earlier ones go"
            )
            return ApiError(429, "too_many_uploads", message, {"Retry-After": _seconds(wait_s)})
        case TooManyActive(limit=limit):
            return _soon("too_many_active_tasks", f"Too many active tasks: this project may have {limit} at a time")
        case QueueFull():
            return _soon("queue_full", f"The queue of {endpoint} is full")
        case StoreFull():
            message = "The task store is nearly full and takes no new tasks for now; nothing was charged"
            return ApiError(503, "store_full", message, {"Retry-After": str(_SWEEP_S)})
        case SubmitExpired():
            return ApiError(503, "store_unavailable", STORE_UNREACHABLE, SHORTLY)
        case _:
            return refusal


def _reason(refusal: TaskRejected) -> str:
    """Returns the name of its class in snake case: `queue_full`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(refusal).__name__).lower()


def rate_limit_headers(limits: Limits, remaining: int | None, wait_s: float = 0.0) -> dict[str, str]:
    """Returns the headers for a key with `remaining` requests, the next in `wait_s`; none for a repeated reply."""
    if remaining is None:
        return {}
    until_more = wait_s or 1 / limits.requests_per_s
    return {
        "RateLimit-Policy": f'"requests";q={limits.burst};w={math.ceil(limits.burst / limits.requests_per_s)}',
        "RateLimit": f'"requests";r={remaining};t={_seconds(until_more)}',
    }


def _spending_message(refusal: SpendingLimitReached) -> str:
    resets = datetime.fromtimestamp(refusal.resets, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        f"Spending limit reached: this project may spend {format_credits(refusal.limit)} credits a {refusal.window} "
        f"and has spent {format_credits(refusal.spent)}, tasks on their way included; it resets at {resets}"
    )


def _soon(code: Code, message: str) -> ApiError:
    return ApiError(429, code, message, {"Retry-After": str(_SOON)})


def _seconds(wait_s: float) -> str:
    return str(max(1, math.ceil(wait_s)))


def other_regions_message(name: str, endpoint: Endpoint, service: ServiceSettings) -> str | None:
    """Returns a message with the addresses of an endpoint that only other regions serve; None if this one does."""
    if service.region is None or not endpoint.regions or service.region in endpoint.regions:
        return None
    addresses = ", ".join(f"{service.regions[region].rstrip('/')}/v1/{name}" for region in endpoint.regions)
    return f"Not served in region {service.region}; this endpoint is at {addresses}"
