"""Steps of a call, without input and output: requests to send, and pauses.

A call is a generator. It yields an `HttpRequest` and receives an `Answer` or `NoAnswer`; it yields a `Pause` and
receives None; it returns the call's result. `Client` and `AsyncClient` carry out the steps.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from gen_serve_client.errors import (
    FieldProblem,
    InsufficientCredits,
    InvalidRequest,
    NotAllowed,
    OutOfReach,
    Refused,
    TooManyRequests,
)
from gen_serve_client.retries import Retries, retry_after_s

LOOPBACK_MOUNTS: Final = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")}
"""Makes httpx2 connect directly to a service on this machine, whatever proxies the environment sets."""

T = TypeVar("T")
Param: TypeAlias = str | float | Sequence[str]

_REFUSALS = {401: NotAllowed, 402: InsufficientCredits, 403: NotAllowed, 429: TooManyRequests}
_TEXT_CHARS = 200
"""Length of the quoted text of an answer in another form, such as a gateway's page."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    url: str
    timeout_s: float
    """Timeout of each read and write."""
    params: Mapping[str, Param]
    headers: Mapping[str, str]
    content: bytes | Path | None
    repeatable: bool
    """True for an idempotent request. Others are retried only if the first try certainly did nothing."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """Headers, with names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        """Content of the body; None if it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class NoAnswer:
    reason: str
    connected: bool
    """True if the service may have received the request."""


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


Step: TypeAlias = HttpRequest | Pause
Reply: TypeAlias = Answer | NoAnswer | None
Steps: TypeAlias = Generator[Step, Reply, T]


def exchange(
    request: HttpRequest, base_url: str, retries: Retries, accept: int | None = None, deadline: float | None = None
) -> Steps[Answer]:
    """Sends a request with retries. Returns an answer with 2xx or the status `accept`. Raises OutOfReach and Refused.

    `deadline`: monotonic time of the last try.
    """
    number = 1
    while True:
        answer = yield request
        assert answer is not None
        if isinstance(answer, Answer) and (200 <= answer.status < 300 or answer.status == accept):
            return answer
        wait_s = _wait_s(request, answer, number, retries)
        if wait_s is None or (deadline is not None and time.monotonic() + wait_s > deadline):
            raise _error(answer, base_url)
        yield Pause(wait_s)
        number += 1


def _wait_s(request: HttpRequest, answer: Answer | NoAnswer, number: int, retries: Retries) -> float | None:
    if isinstance(answer, NoAnswer):
        if answer.connected and not request.repeatable:
            return None
        return retries.wait_s(number, None, None)
    if answer.status >= 500 and not request.repeatable:
        return None
    return retries.wait_s(number, answer.status, retry_after_s(answer.headers))


def _error(answer: Answer | NoAnswer, base_url: str) -> OutOfReach | Refused:
    if isinstance(answer, NoAnswer):
        return OutOfReach(base_url, answer.reason, connected=answer.connected)
    body = answer.json
    detail = body.get("detail") if isinstance(body, dict) else None
    if answer.status == 422 and (problems := _problems(detail)):
        return InvalidRequest(problems)
    text = detail if isinstance(detail, str) else answer.body[:_TEXT_CHARS].decode(errors="replace")
    if answer.status >= 500:
        return OutOfReach(base_url, text, answer.status, connected=True)
    return _REFUSALS.get(answer.status, Refused)(answer.status, text, retry_after_s(answer.headers))


def _problems(detail: Any) -> list[FieldProblem]:
    """Returns the field errors of a 422; empty if it has another form."""
    try:
        return [
            FieldProblem(".".join(map(str, entry["loc"])), str(entry["msg"]), str(entry.get("type", "")))
            for entry in detail
        ]
    except (AttributeError, KeyError, TypeError):
        return []
