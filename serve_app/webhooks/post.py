"""One call to a receiver, and what it answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import httpx2

from serve_app.media.bounded_answers import AnswerRefused
from serve_app.media.url_guard import UrlRefused, connection_problem

KEPT_BYTES: Final = 1024
"""Of an answer's body."""
_GONE: Final = 410
_BUSY: Final = 429
_CONTENT_TYPE: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int | None
    """None: there was no answer, and `error` says why."""
    error: str = ""
    text: str = ""
    """How its body begins; empty for an encoded one."""
    retry_after_s: float | None = None
    took_s: float = 0.0
    called: bool = True
    """Whether it came to a call."""

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        return self.status == _GONE

    @property
    def unwell(self) -> bool | None:
        """Whether the receiver as a whole seems to be down or overloaded, rather than this one call refused; None
        without a call."""
        if not self.called:
            return None
        return self.status is None or self.status >= 500 or self.status == _BUSY


async def post(
    client: httpx2.AsyncClient, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float
) -> Answer:
    """Never raises for what a receiver does, or a network."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            answer = await _call(client, url, body, headers)
    except (TimeoutError, httpx2.TimeoutException):
        answer = Answer(None, f"no answer within {timeout_s:g} s")
    except (UrlRefused, AnswerRefused) as refusal:
        answer = Answer(None, str(refusal))
    except httpx2.ConnectError as error:
        answer = Answer(None, connection_problem(error))
    except (httpx2.HTTPError, httpx2.InvalidURL):
        answer = Answer(None, "the connection broke, or what came was not HTTP")
    return Answer(answer.status, answer.error, answer.text, answer.retry_after_s, time.monotonic() - began)


async def _call(client: httpx2.AsyncClient, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    told = {"content-type": _CONTENT_TYPE, "accept-encoding": "identity", **headers}
    async with client.stream("POST", url, content=body, headers=told) as response:
        kept = b""
        # Never unfolded: what a few kilobytes unfold to may hold up all other deliveries.
        async for part in response.aiter_raw(KEPT_BYTES):
            kept += part
            if len(kept) >= KEPT_BYTES:
                break
    wish = _seconds(response.headers.get("retry-after", ""))
    text = kept[:KEPT_BYTES].decode(errors="replace") if response.headers.get("content-encoding") is None else ""
    return Answer(response.status_code, text=text, retry_after_s=wish)


def _seconds(retry_after: str) -> float | None:
    """Seconds or a date, as RFC 9110 has it."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:9])
    try:
        at = parsedate_to_datetime(retry_after)
    except (OverflowError, TypeError, ValueError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())
