"""Policy of retries: which requests are sent again, and after how long."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_TOO_MANY = 429
_BUSY = 409
"""Conflict; with `Retry-After` the first request with this Idempotency-Key is still in progress."""


@dataclass(frozen=True, slots=True)
class Retries:
    """Limits of retries. Requests that the service rejects for good are never retried."""

    tries: int = 6
    """Tries while the service is unreachable or unavailable, at least 1; by default they take about ten seconds."""
    too_many_tries: int = 4
    """Tries while the service answers 429, at least 1."""
    first_wait_s: float = 0.5
    """Seconds after the first try, unless the service sets them; doubled for each further one, less up to a half."""
    longest_wait_s: float = 30.0
    """Longest wait in seconds; if the service wants a longer one, there is no retry."""

    def __post_init__(self) -> None:
        if min(self.tries, self.too_many_tries) < 1:
            raise ValueError("a request is tried once at least: tries and too_many_tries should be 1 or more")

    def wait_s(self, number: int, status: int | None, retry_after_s: float | None) -> float | None:
        """Returns the seconds from try `number`, counted from 1, to the next; None if there is no other.

        `status`: that of the answer; None without an answer.
        """
        if number >= (self.too_many_tries if status == _TOO_MANY else self.tries):
            return None
        if not (
            status is None or status >= 500 or status == _TOO_MANY or (status == _BUSY and retry_after_s is not None)
        ):
            return None
        if retry_after_s is not None and retry_after_s > self.longest_wait_s:
            return None
        own = min(self.first_wait_s * 2 ** (number - 1), self.longest_wait_s) * random.uniform(0.5, 1.0)
        return max(own, retry_after_s or 0.0)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Parses Retry-After, seconds or a date (RFC 9110); None for neither. `headers` have lower-case names."""
    value = headers.get("retry-after", "")
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        at = parsedate_to_datetime(value)
    except (OverflowError, ValueError):
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
