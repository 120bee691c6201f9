"""How a submission that the task store refused is answered, and the headers that tell how many more there may be.

Rate limit fields are those of draft-ietf-httpapi-ratelimit-headers: a policy of `q` requests per `w` seconds, and what
is left of it.
"""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime
from typing import Final

from fastapi import HTTPException

from serve_app.accounts.credits import told
from serve_app.http.errors import OUT_OF_REACH, SHORTLY, ApiError, Code
from serve_app.http.services import Services
from serve_app.redis_store.tally import Tallied
from serve_app.submission.errors import Invalid
from serve_app.tasks.limits import (
    IdempotencyMismatch,
    InsufficientCredits,
    Limits,
    ProjectClosed,
    QueueFull,
    Refused,
    ReplyUnreadable,
    SpendingLimitReached,
    StillInWork,
    StoreFull,
    TooFast,
    TooLate,
    TooManyActive,
)

PROJECT_CLOSED: Final = "Not allowed: this project is closed"

_MEMORY_FREED_S = 30
"""Tasks are swept every few seconds, once their retention is over."""
_SOON = 5
"""Seconds until another try is worth it, where nothing better is known."""


def answer(refusal: Refused, endpoint: str, services: Services) -> Exception:
    """The exception that the client is to see as an answer. Counts it among the figures."""
    services.tally.count(Tallied.REFUSALS, f"{_reason(refusal)} {endpoint}")
    limits = services.tasks.limits
    match refusal:
        case IdempotencyMismatch():
            message = "This Idempotency-Key was used with another request body in the last 24 hours"
            return Invalid(["header", "Idempotency-Key"], message, "idempotency_key_reused")
        case StillInWork():
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
            return ApiError(402, "spending_limit_reached", _over_limit(refusal), headers)
        case TooFast(wait_s=wait_s):
            headers = {"Retry-After": _seconds(wait_s), **rate_limit(limits, left=0, wait_s=wait_s)}
            return HTTPException(
                429, f"Too many requests: this key may send {limits.requests_per_s:g} a second", headers
            )
        case TooManyActive(limit=limit):
            return _later("too_many_active_tasks", f"Too many active tasks: this project may have {limit} at a time")
        case QueueFull():
            return _later("queue_full", f"The queue of {endpoint} is full")
        case StoreFull():
            message = "The task store is nearly full and takes no new tasks for now; nothing was charged"
            return ApiError(503, "store_full", message, {"Retry-After": str(_MEMORY_FREED_S)})
        case TooLate():
            return ApiError(503, "store_unavailable", OUT_OF_REACH, SHORTLY)
        case _:
            return refusal


def _reason(refusal: Refused) -> str:
    """The name of its kind: `queue_full`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(refusal).__name__).lower()


def rate_limit(limits: Limits, left: int, wait_s: float = 0.0) -> dict[str, str]:
    """Headers for a key that may send `left` more requests right now; `wait_s` is until the next where none is left."""
    until_more = wait_s or 1 / limits.requests_per_s
    return {
        "RateLimit-Policy": f'"requests";q={limits.burst};w={math.ceil(limits.burst / limits.requests_per_s)}',
        "RateLimit": f'"requests";r={left};t={_seconds(until_more)}',
    }


def _over_limit(refusal: SpendingLimitReached) -> str:
    resets = datetime.fromtimestamp(refusal.resets, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        f"Spending limit reached: this project may spend {told(refusal.limit)} credits a {refusal.window} and has "
        f"spent {told(refusal.spent)}, tasks on their way included; it resets at {resets}"
    )


def _later(code: Code, message: str) -> ApiError:
    return ApiError(429, code, message, {"Retry-After": str(_SOON)})


def _seconds(wait_s: float) -> str:
    return str(max(1, math.ceil(wait_s)))
