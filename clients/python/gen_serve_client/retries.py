"""When a request is sent again, and how long that is waited for."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_TOO_MANY = 429
_BUSY = 409
"""With `Retry-After`: the first request with this Idempotency-Key is still being handled."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is sent, at most. What is refused for good is never sent again."""

    tries: int = 6
    """While the service is out of reach or can't work, from 1; with the waits below, for about ten seconds."""
    too_many_tries: int = 4
    """While it answers 429, from 1."""
    first_wait_s: float = 0.5
    """After the first try, if the service does not say; doubled after each further one, and up to a half shorter."""
    longest_wait_s: float = 30.0
    """A service that wants more is not asked again."""

    def __post_init__(self) -> None:
        if min(self.tries, self.too_many_tries) < 1:
            raise ValueError("a request is tried once at least: tries and too_many_tries are from 1")

    def wait_s(self, number: int, status: int | None, retry_after_s: float | None) -> float | None:
        """Until the try after this one, whose number counts from 1; None: there is no other.

        `status` is that of the answer, None where there was none.
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
    """Seconds or a date, as RFC 9110 has it; None where there is neither. The names of `headers` are in lower case."""
    value = headers.get("retry-after", "")
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        at = parsedate_to_datetime(value)
    except (OverflowError, ValueError):
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
