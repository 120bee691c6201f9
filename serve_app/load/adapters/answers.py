"""What an answer says, and what is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

import httpx2

from serve_app.load.outcome import End, Outcome

_AFTER_ERROR_S: Final = 0.2
_REFUSALS: Final = frozenset({503, *range(400, 500)})


class NotServed(Exception):
    """How a request ended that has no result, and why."""

    def __init__(self, end: End, reason: str) -> None:
        super().__init__(reason)
        self.end: End = end
        self.reason = reason


def unusable(what: str) -> NotServed:
    """An answer that says that all is well, and has not what it should have."""
    return NotServed("failed", f"unusable answer: {what}")


def check_status(answer: httpx2.Response, good: Collection[int] = (200,)) -> None:
    """Raises NotServed unless the status is a good one."""
    if answer.status_code not in good:
        raise NotServed("refused" if answer.status_code in _REFUSALS else "failed", f"HTTP {answer.status_code}")


def object_of(answer: httpx2.Response) -> dict[str, Any]:
    """Raises NotServed unless the answer is a JSON object."""
    try:
        told = answer.json()
    except (ValueError, RecursionError):
        raise unusable("no JSON") from None
    if not isinstance(told, dict):
        raise unusable("no JSON object")
    return told


def same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


class PollFailed(Exception):
    """A poll whose answer says nothing about the task."""


async def until_ended(
    poll: Callable[[], Awaitable[bool]],
    outcome: Outcome,
    time_left: Callable[[], float],
    every: float,
    *,
    at_once: bool = False,
) -> None:
    """Polls until one says that the task ended. They begin at least `every` seconds after each other, and the first
    that long after the submission unless `at_once`. One that fails is counted and repeated, as it says nothing
    about the task. Raises NotServed when the time is up: the task is lost then.
    """
    pause = 0.0 if at_once else every
    while (left := time_left()) > 0:
        await asyncio.sleep(min(pause, left))
        outcome.polls += 1
        left_before = time_left()
        try:
            if await poll():
                return
        except (httpx2.HTTPError, PollFailed):
            outcome.poll_errors += 1
            await asyncio.sleep(_AFTER_ERROR_S)
        pause = max(0.0, every - (left_before - time_left()))
    raise NotServed("lost", "never seen to end")
