"""Steps of a call, without any input or output: what to send, and how long to pause.

A call is a generator. It yields a `Request` and is sent back an `Answer`, or `NoAnswer`; it yields a `Pause` and is
sent back None; what it returns is the caller's. `Client` and `AsyncClient` carry out the steps, each in its own way.
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
"""Has httpx2 call a service on this machine directly, whatever proxies the environment names."""

T = TypeVar("T")
Param: TypeAlias = str | float | Sequence[str]

_KINDS = {401: NotAllowed, 402: InsufficientCredits, 403: NotAllowed, 429: TooManyRequests}
_TEXT_CHARS = 200
"""Of a refusal that is not of the service's form: a gateway's page, say."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    url: str
    timeout_s: float
    """For each read and write."""
    params: Mapping[str, Param]
    headers: Mapping[str, str]
    content: bytes | Path | None
    repeatable: bool
    """Whether a second one changes nothing. Others are sent again only where the first surely did nothing."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        """None for what is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class NoAnswer:
    reason: str
    connected: bool
    """Whether anything may have been received."""


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


Step: TypeAlias = Request | Pause
Reply: TypeAlias = Answer | NoAnswer | None
Steps: TypeAlias = Generator[Step, Reply, T]


def exchange(
    request: Request, base_url: str, retries: Retries, accept: int | None = None, give_up: float | None = None
) -> Steps[Answer]:
    """The answer, if it is 2xx or has the status `accept`. Raises OutOfReach and Refused.

    `give_up`: no further try begins after that, by the monotonic clock.
    """
    number = 1
    while True:
        answer = yield request
        assert answer is not None
        if isinstance(answer, Answer) and (200 <= answer.status < 300 or answer.status == accept):
            return answer
        wait_s = _wait_s(request, answer, number, retries)
        if wait_s is None or (give_up is not None and time.monotonic() + wait_s > give_up):
            raise _error(answer, base_url)
        yield Pause(wait_s)
        number += 1


def _wait_s(request: Request, answer: Answer | NoAnswer, number: int, retries: Retries) -> float | None:
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
    return _KINDS.get(answer.status, Refused)(answer.status, text, retry_after_s(answer.headers))


def _problems(detail: Any) -> list[FieldProblem]:
    """Empty where it is of another form."""
    try:
        return [
            FieldProblem(".".join(map(str, entry["loc"])), str(entry["msg"]), str(entry.get("type", "")))
            for entry in detail
        ]
    except (AttributeError, KeyError, TypeError):
        return []
