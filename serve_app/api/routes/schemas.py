"""Shared types and response bodies of routes, and responses to rejected submissions."""

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


def _check_text(secret: SecretStr) -> SecretStr:
    """Raises ValueError for unpaired surrogates, which JSON allows."""
    try:
        secret.get_secret_value().encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode") from None
    return secret


Secret = Annotated[SecretStr, AfterValidator(_check_text)]


class ErrorResponse(BaseModel):
    detail: str = Field(description="Message for people")
    code: str = Field(description="Code for programs; never changes")
    hint: str | None = Field(default=None, description="Suggestion what to send instead")
    request_id: str | None = Field(default=None, description="Value of `x-request-id`, also in the logs")


class ValidationErrorEntry(BaseModel):
    type: str = Field(description="Code for programs")
    loc: list[str] = Field(description="Location: `body`, `query`, `path` or `header`, then names of fields")
    msg: str = Field(description="Message for people")
    ctx: dict[str, Any] | None = Field(default=None, description="Violated bounds")


class ValidationErrorResponse(BaseModel):
    detail: list[ValidationErrorEntry]
    code: str = Field(description="`invalid_request`")
    request_id: str | None = Field(default=None, description="Value of `x-request-id`, also in the logs")


MEANINGS = {
    400: "The tuned model does not exist or is not ready",
    401: "The bearer token is refused; the response says why",
    402: "Not enough credits, or a spending limit is reached",
    403: "API key missing, wrong, expired or revoked, or its role does not permit this",
    404: "Not found",
    408: "The upload was too slow",
    409: "Not possible in the present state",
    413: "Request body too large",
    429: "Too many requests or active tasks, or the queue is full; see `Retry-After`",
    500: "The report was not processed and not counted",
    503: "The task store or the object store is out of reach, or the service is overloaded; see `Retry-After`",
}


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Returns the `responses=` of a route with these codes and 422. 403 adds 401, for bearer tokens."""
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
    input_mp: float | None = Field(description="Size of the inputs without masks, in 2^20 pixels, 2 decimals")
    output_mp: float | None = Field(
        description="Size of the result in 2^20 pixels, 2 decimals; the tier's size if the prompt decides the ratio"
    )
    status: str | None = Field(default=None, description="`Pending`; only with a webhook")
    webhook_url: str | None = Field(default=None, description="The webhook of the request; absent without one")
    warnings: list[str] | None = Field(
        default=None,
        description="Parts of the request that will be ignored; also in `details` beside the result. Absent if none",
    )


def task_not_found() -> ApiError:
    return ApiError(404, "task_not_found", "Task not found")


def conceal_id(task_id: str) -> str:
    """Returns a substitute for a task's id, for callers who may not read its result: the id alone gives access."""
    return f"sha256:{hashlib.sha256(task_id.encode()).hexdigest()[:16]}"


class TaskSummary(BaseModel):
    id: str
    endpoint: str
    status: Status
    prompt: str | None = Field(description="Prompt as sent, truncated. Null if it can't be read")
    thumbnail: str | None = Field(
        description="Link to a small image of the result or of the latest preview; null if there is none"
    )
    progress: float | None = Field(description="0.0 to 1.0; null if unknown")
    attempt: int = Field(description="Number of attempts started")
    created: float = Field(description="Epoch seconds")
    started: float | None
    finished: float | None
    expires: float | None = Field(description="Time of deletion; null before the end")
    cost: float | None = Field(description="Settled cost in credits, once known")


class TaskDetails(TaskSummary):
    prompt: str | None = Field(description="Prompt as sent. Null if it can't be read")
    parameters: dict[str, str | int | float | bool] = Field(
        description="Known parameters of the generation: `width`, `height`, `steps`, `seed` …"
    )
    inputs: int = Field(description="Number of images and videos sent")
    shared: bool = Field(description="True while its page has links that are not revoked")


class DeliveryAttempt(BaseModel):
    at: float = Field(description="Epoch seconds")
    status: int | None = Field(description="HTTP status of the response; null without one")
    error: str | None = Field(description="Reason for a missing response")
    response: str | None = Field(description="Start of the response body, at most 1 KiB")
    took_s: float = Field(description="Seconds from connection to response")


class TaskDelivery(BaseModel):
    """State of a task's webhook."""

    id: str = Field(description="Id of the task, sent as `webhook-id` with every attempt")
    destination: str = Field(description="Scheme, host and port of `webhook_url`, whose other parts may be secrets")
    state: Literal["not due", "waiting", "sending", "delivered", "failed"] = Field(
        description="`not due` before the task ends; `failed` after the last attempt"
    )
    next: float | None = Field(description="Time of the next attempt, epoch seconds")
    attempts: list[DeliveryAttempt] = Field(description="The latest 50, oldest first")


class TaskPage(BaseModel):
    tasks: list[TaskSummary]
    next: str | None = Field(
        description="Cursor of the next page; null on the last one. With filters, a page before the last may have "
        "fewer tasks than `limit`"
    )


PROJECT_CLOSED: Final = "Not allowed: this project is closed"

_SWEEP_S = 30
"""Seconds until sweeps have freed memory."""
_DEFAULT_RETRY_S = 5


def rejection_error(refusal: TaskRejected, endpoint: str, services: Services) -> Exception:
    """Returns the exception for the client, and counts the rejection for the metrics."""
    services.tally.count(CounterName.REFUSALS, f"{_reason(refusal)} {endpoint}")
    limits = services.tasks.store.limits
    match refusal:
        case IdempotencyMismatch():
            message = "This Idempotency-Key was used with another request body in the last 24 hours"
            return Invalid(["header", "Idempotency-Key"], message, "idempotency_key_reused")
        case RequestInProgress():
            message = "The first request with this Idempotency-Key is still being processed; try again shortly"
            return ApiError(409, "request_in_progress", message, {"Retry-After": "1"})
        case ReplyUnreadable():
            message = "The reply to this Idempotency-Key can no longer be read; GET /v1/tasks lists its task"
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
            message = f"Too many requests: this key may send {limits.requests_per_s:g} per second"
            return HTTPException(429, message, headers)
        case TooManyUploads(wait_s=wait_s):
            message = (
                f"Too many uploads: this project may reserve {limits.max_uploads}, of {limits.max_uploads_mb} MiB in "
                "total; send their sizes, or wait until earlier ones expire"
            )
            return ApiError(429, "too_many_uploads", message, {"Retry-After": _seconds(wait_s)})
        case TooManyActive(limit=limit):
            return _retry_later(
                "too_many_active_tasks", f"Too many active tasks: this project may have {limit} at a time"
            )
        case QueueFull():
            return _retry_later("queue_full", f"The queue of {endpoint} is full")
        case StoreFull():
            message = "The task store is nearly full and accepts no tasks now; nothing was charged"
            return ApiError(503, "store_full", message, {"Retry-After": str(_SWEEP_S)})
        case SubmitExpired():
            return ApiError(503, "store_unavailable", STORE_UNREACHABLE, SHORTLY)
        case _:
            return refusal


def _reason(refusal: TaskRejected) -> str:
    """Returns the class name in snake case: `queue_full`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(refusal).__name__).lower()


def rate_limit_headers(limits: Limits, remaining: int | None, wait_s: float = 0.0) -> dict[str, str]:
    """Returns the headers for a key with `remaining` requests; none for a repeated reply, which has no count."""
    if remaining is None:
        return {}
    next_s = wait_s or 1 / limits.requests_per_s
    return {
        "RateLimit-Policy": f'"requests";q={limits.burst};w={math.ceil(limits.burst / limits.requests_per_s)}',
        "RateLimit": f'"requests";r={remaining};t={_seconds(next_s)}',
    }


def _spending_message(refusal: SpendingLimitReached) -> str:
    resets = datetime.fromtimestamp(refusal.resets, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        f"Spending limit reached: this project may spend {format_credits(refusal.limit)} credits per {refusal.window} "
        f"and has spent {format_credits(refusal.spent)}, including unfinished tasks; the limit resets at {resets}"
    )


def _retry_later(code: Code, message: str) -> ApiError:
    return ApiError(429, code, message, {"Retry-After": str(_DEFAULT_RETRY_S)})


def _seconds(wait_s: float) -> str:
    return str(max(1, math.ceil(wait_s)))


def other_regions_message(name: str, endpoint: Endpoint, service: ServiceSettings) -> str | None:
    """Returns the addresses of an endpoint that only other regions serve; None if this region serves it."""
    if service.region is None or not endpoint.regions or service.region in endpoint.regions:
        return None
    addresses = ", ".join(f"{service.regions[region].rstrip('/')}/v1/{name}" for region in endpoint.regions)
    return f"Not served in region {service.region}; this endpoint is at {addresses}"
