"""The moderation gate: inputs are moderated before any work, results before a client can see them.

A result is stored at its final place before it is moderated. Objects can only be fetched by a signed link, and links
are signed only for results in a task's record. A result enters the record after it has passed.

The gate fails closed. A task waits while the moderator is unreachable, and fails after `wait_s`. Nothing passes
unmoderated, unless the settings allow it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from deployments.contract.job import media_type
from deployments.contract.moderation import Scores, Thresholds, Tolerance, highest

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.25, 5.0
_MAX_CALLS: Final = 32


class Classifiers(Protocol):
    """Scores texts, and objects by their keys. An error means that the subject was not moderated."""

    async def moderate_text(self, text: str, /) -> Scores: ...
    async def moderate_object(self, key: str, /) -> Scores: ...


class ModeratorLimiter:
    """Per-process concurrency limit for one kind of moderator call, first in, first out.

    Calls wait here rather than in the moderator. There, a call that times out has used a slot for nothing, and a slow
    moderator would classify less the more calls it gets.
    """

    def __init__(self, max_calls: int) -> None:
        self._slots = asyncio.Semaphore(max_calls)
        self.last_answer = -math.inf
        """Monotonic time of the moderator's last answer to any call."""

    @property
    def is_full(self) -> bool:
        return self._slots.locked()

    @asynccontextmanager
    async def slot(self, draining: asyncio.Event | None = None) -> AsyncIterator[None]:
        """Holds a slot. Raises DispatcherDraining if `draining` is set before a slot is free."""
        acquisition = asyncio.create_task(self._slots.acquire())
        leaving = asyncio.create_task(draining.wait()) if draining else None
        try:
            await asyncio.wait(filter(None, (acquisition, leaving)), return_when=asyncio.FIRST_COMPLETED)
            if not acquisition.done():
                raise DispatcherDraining
            yield
        finally:
            if leaving:
                leaving.cancel()
            if not acquisition.cancel():  # already acquired
                self._slots.release()


class Unmoderated(Exception):
    """The moderator was unreachable for as long as a task may wait."""


class DispatcherDraining(Exception):
    """This process starts nothing new; another dispatcher may run the task."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Moderates requests, results and previews.

    `call_s` limits one call of the moderator, `video_call_s` one about a video, which is read to its end. A request or
    a result is given up when the moderator has answered no call at all for `wait_s`.
    """

    classifiers: Classifiers
    thresholds: Thresholds
    call_s: float = 10.0
    video_call_s: float = 120.0
    wait_s: float = 120.0
    fail_open: bool = False
    calls: ModeratorLimiter = field(default_factory=lambda: ModeratorLimiter(_MAX_CALLS))
    video_calls: ModeratorLimiter = field(default_factory=lambda: ModeratorLimiter(1))
    observe: Callable[[str, float], None] = lambda subject, seconds: None
    """Receives the duration in seconds of each moderation of a `request` or an `output`, failed ones too."""

    async def request(
        self, prompt: str, inputs: Sequence[str], tolerance: Tolerance, draining: asyncio.Event
    ) -> list[str]:
        """Returns the reasons to refuse a prompt and the input images at these keys; empty if they may pass.

        Raises Unmoderated, DispatcherDraining.
        """
        scores = [self._moderate(prompt, draining, is_text=True)] if prompt.strip() else []
        scores += [self._moderate(key, draining) for key in inputs]
        return await self._reasons("request", scores, tolerance)

    async def output(self, keys: Sequence[str], tolerance: Tolerance, draining: asyncio.Event) -> list[str]:
        """Returns the reasons to refuse results whose proxies are stored at `keys`. Raises as `request` does."""
        return await self._reasons("output", [self._moderate(key, draining) for key in keys], tolerance)

    async def preview(self, key: str, tolerance: Tolerance) -> bool:
        """Tells whether a preview may be shown: False if moderation fails or has no free slot."""
        if self.calls.is_full:
            return False
        try:
            async with self.calls.slot(), asyncio.timeout(self.call_s):
                return not self.thresholds.categories_over(await self.classifiers.moderate_object(key), tolerance)
        except Exception as problem:
            logger.warning("a preview is not shown because its moderation failed: %s", type(problem).__name__)
            return False

    async def _reasons(self, subject: str, scores: Sequence[Awaitable[Scores]], tolerance: Tolerance) -> list[str]:
        started_at = time.monotonic()
        moderation = [asyncio.ensure_future(each) for each in scores]
        try:
            all_scores = await asyncio.gather(*moderation)
        finally:
            # After one failure, retries of the others would hold slots that other tasks wait for.
            for each in moderation:
                each.cancel()
            self.observe(subject, time.monotonic() - started_at)
        return self.thresholds.categories_over(highest(all_scores), tolerance)

    async def _moderate(self, subject: str, draining: asyncio.Event, *, is_text: bool = False) -> Scores:
        classify = self.classifiers.moderate_text if is_text else self.classifiers.moderate_object
        is_video = not is_text and media_type(subject).startswith("video/")
        limiter, limit_s = (self.video_calls, self.video_call_s) if is_video else (self.calls, self.call_s)
        pause, first_try = _FIRST_PAUSE_S, None
        while True:
            async with limiter.slot(draining):
                first_try = first_try or time.monotonic()
                try:
                    async with asyncio.timeout(limit_s):
                        scores = await classify(subject)
                    limiter.last_answer = time.monotonic()
                    return scores
                except Exception as error:
                    problem = error
                logger.warning("the moderator could not classify: %s", type(problem).__name__)
                if time.monotonic() + pause > max(first_try, limiter.last_answer) + self.wait_s:
                    if self.fail_open:
                        return {}
                    raise Unmoderated from problem
                if draining.is_set():
                    raise DispatcherDraining from problem
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_S)
