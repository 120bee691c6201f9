"""Client of a gen-serve service for images and videos: `Client`, `AsyncClient`, `verify_webhook`."""

from gen_serve_client.async_client import AsyncClient
from gen_serve_client.client import Client
from gen_serve_client.errors import (
    FieldProblem,
    GenServeError,
    InsufficientCredits,
    InvalidRequest,
    Moderated,
    NotAllowed,
    NotInTime,
    OutOfReach,
    Refused,
    TaskFailed,
    TaskNotFound,
    TaskUnsuccessful,
    TooManyRequests,
    UnexpectedAnswer,
    WebhookRefused,
)
from gen_serve_client.result import AsyncResult, Result
from gen_serve_client.retries import Retries
from gen_serve_client.webhook import verify_webhook

__all__ = [
    "AsyncClient",
    "AsyncResult",
    "Client",
    "FieldProblem",
    "GenServeError",
    "InsufficientCredits",
    "InvalidRequest",
    "Moderated",
    "NotAllowed",
    "NotInTime",
    "OutOfReach",
    "Refused",
    "Result",
    "Retries",
    "TaskFailed",
    "TaskNotFound",
    "TaskUnsuccessful",
    "TooManyRequests",
    "UnexpectedAnswer",
    "WebhookRefused",
    "verify_webhook",
]
