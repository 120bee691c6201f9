"""The moderation gate: inputs are moderated before any work, results before anyone can see them.

A result is stored once, where it stays. Nothing there can be fetched without a signed link, and a link is signed for
what a task's record names alone, which a result enters after it has passed.

It fails closed. While the moderator can't be reached a task waits here, and after `wait_s` it ends; nothing passes
unmoderated, unless the configuration says so.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from obstore.exceptions import BaseError

from deployments.contract.job import media_type
from deployments.contract.moderation import Scores, Thresholds, Tolerance, highest
from deployments.contract.objects import ObjectStore

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 5.0
_LOOK_EVERY_S: Final = 1.0
_PLACES: Final = 32


Classify: TypeAlias = Callable[[str], Awaitable[Scores]]
"""Of a text, or of the object at a key. Whatever it raises means that nothing was moderated."""


class Calls:
    """Calls of the moderator that are alike, from this process: so many at a time, first come, first served.

    Those beyond wait here, where waiting costs nothing, and not before the moderator, where a call that is cut off
    after its time has cost a place in vain: a slow moderator would classify less the more it is asked.
    """

    def __init__(self, at_a_time: int) -> None:
        self._places = asyncio.Semaphore(at_a_time)
        self.last_answer = -math.inf
        """When one last was, by the monotonic clock: for so long the moderator is surely within reach."""

    @property
    def is_full(self) -> bool:
        return self._places.locked()

    @asynccontextmanager
    async def place(self, leaving: Callable[[], bool]) -> AsyncIterator[None]:
        """Raises DispatcherDraining."""
        # One place in the row for all of the wait: asked for anew at each look, it would be the last each time.
        turn = asyncio.create_task(self._places.acquire())
        try:
            while not turn.done():
                await asyncio.wait([turn], timeout=_LOOK_EVERY_S)
                if not turn.done() and leaving():
                    raise DispatcherDraining
            yield
        finally:
            if not turn.cancel():  # it was done
                self._places.release()


class _Call(NamedTuple):
    scores: Callable[[], Awaitable[Scores]]
    limit_s: float
    among: Calls


class Unmoderated(Exception):
    """The moderator was out of reach for as long as a task may wait for it."""


class DispatcherDraining(Exception):
    """Something is out of reach for now, and the task is better given back: another attempt may do."""


@dataclass(frozen=True, slots=True)
class Gate:
    """`call_s` bounds one call of the moderator, `video_call_s` one about a video, which it reads to its end. A task's
    request, or its output, waits until the moderator has answered nobody for `wait_s`."""

    moderate_text: Classify
    moderate_object: Classify
    thresholds: Thresholds
    objects: ObjectStore
    call_s: float = 10.0
    video_call_s: float = 120.0
    wait_s: float = 120.0
    open_when_down: bool = False
    calls: Calls = field(default_factory=lambda: Calls(_PLACES))
    video_calls: Calls = field(default_factory=lambda: Calls(1))
    took: Callable[[str, float], None] = lambda what, seconds: None
    """Is told how long moderation a `request`, or an `output`, took, whatever came of it."""

    async def request(
        self, prompt: str, inputs: Sequence[str], tolerance: Tolerance, leaving: Callable[[], bool]
    ) -> list[str]:
        """Why a prompt and the input images at these keys are refused; empty when they may pass.

        Raises Unmoderated, DispatcherDraining.
        """
        calls = [self._text_call(prompt)] if prompt.strip() else []
        calls += [self._object_call(key) for key in inputs]
        return await self._measure("request", self._reasons(calls, tolerance, leaving))

    async def output(self, key: str, tolerance: Tolerance, leaving: Callable[[], bool]) -> list[str]:
        """The same for a result whose proxy is stored at `key`."""
        return await self._measure("output", self._reasons([self._object_call(key)], tolerance, leaving))

    async def preview(self, key: str, tolerance: Tolerance) -> bool:
        """Whether a preview may be seen. It is not worth waiting for: in doubt it may not."""
        if self.calls.is_full:
            return False
        try:
            async with self.calls.place(lambda: False), asyncio.timeout(self.call_s):
                return not self.thresholds.categories_over(await self.moderate_object(key), tolerance)
        except Exception as problem:
            logger.warning("a preview is not shown, since its moderation failed: %s", type(problem).__name__)
            return False

    async def discard(self, keys: Sequence[str]) -> None:
        """Deletes what did not pass. What can't be deleted now goes with the task's other objects."""
        try:
            await self.objects.delete(keys)
        except (BaseError, OSError) as problem:
            logger.warning("a refused result is not deleted yet: %s", type(problem).__name__)

    async def _measure(self, what: str, moderation: Awaitable[list[str]]) -> list[str]:
        began = time.monotonic()
        try:
            return await moderation
        finally:
            self.took(what, time.monotonic() - began)

    def _text_call(self, text: str) -> _Call:
        return _Call(lambda: self.moderate_text(text), self.call_s, self.calls)

    def _object_call(self, key: str) -> _Call:
        if media_type(key).startswith("video/"):
            return _Call(lambda: self.moderate_object(key), self.video_call_s, self.video_calls)
        return _Call(lambda: self.moderate_object(key), self.call_s, self.calls)

    async def _reasons(
        self,
        calls: Sequence[_Call],
        tolerance: Tolerance,
        leaving: Callable[[], bool],
    ) -> list[str]:
        moderation = [asyncio.ensure_future(self._moderate(call, leaving)) for call in calls]
        try:
            scores_by_call = await asyncio.gather(*moderation)
        finally:
            # Where one failed, the others' retries would hold places that other tasks wait for.
            for each in moderation:
                each.cancel()
        return self.thresholds.categories_over(highest(scores_by_call), tolerance)

    async def _moderate(self, call: _Call, leaving: Callable[[], bool]) -> Scores:
        pause, first_try = _FIRST_PAUSE_S, None
        while True:
            async with call.among.place(leaving):
                first_try = first_try or time.monotonic()
                try:
                    async with asyncio.timeout(call.limit_s):
                        scores = await call.scores()
                    call.among.last_answer = time.monotonic()
                    return scores
                except Exception as error:
                    problem = error
                logger.warning("the moderator could not classify: %s", type(problem).__name__)
                if time.monotonic() + pause > max(first_try, call.among.last_answer) + self.wait_s:
                    if self.open_when_down:
                        return {}
                    raise Unmoderated from problem
                if leaving():
                    raise DispatcherDraining from problem
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
