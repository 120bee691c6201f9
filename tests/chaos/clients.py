"""Clients that send tasks and follow them, each in its own manner, and note every answer."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import httpx2

from chaos.journal import Journal, Refusal, Seen
from chaos.receivers import BEHAVIOURS, SECRET, Receiver

TERMINAL: Final = frozenset({"Ready", "Error", "Request Moderated", "Content Moderated"})
SIMULATED: Final = "gen-3-image-klein"
REAL: Final = "gen-2-pro-preview"
_REAL_SHARE: Final = 0.03
_HOOKED, _HANGING_UP, _CANCELLED = 0.5, 0.1, 0.05
_MOST_STEPS: Final = 16
_ANSWER_S: Final = 15.0
_WAITS_S: Final = (0, 0, 0, 2, 10)
"""How long polls wait at the service: most clients just look again and again."""
_AGAIN_S: Final = 0.3
_PATIENCE_S: Final = 180.0
"""How long a client tries to get a task accepted, or waits for its end."""


@dataclass(slots=True)
class Clients:
    base_url: str
    key: str
    receivers: Mapping[str, Receiver]
    journal: Journal
    random: Random

    async def offer(self, http: httpx2.AsyncClient, tasks: int, seconds: float) -> None:
        """Sends so many tasks at random moments of so many seconds, and returns when all have been followed."""
        moments = sorted(self.random.uniform(0, seconds) for _ in range(tasks))
        began = time.monotonic()
        following: list[asyncio.Task[None]] = []
        for moment in moments:
            await asyncio.sleep(max(0.0, began + moment - time.monotonic()))
            following.append(asyncio.create_task(self._one(http)))
        await asyncio.gather(*following)

    async def canary(self, http: httpx2.AsyncClient) -> None:
        """A task with a webhook, followed until it is ready and its receiver has heard of it."""
        seen = await self._submit(http, SIMULATED, "healthy")
        if seen is None:
            raise TimeoutError("no task was accepted any more")
        seen.canary = True
        await self._follow(http, seen)
        async with asyncio.timeout(_PATIENCE_S):
            while seen.id not in self.journal.delivered:
                await asyncio.sleep(0.05)

    async def _one(self, http: httpx2.AsyncClient) -> None:
        random = self.random
        endpoint = REAL if random.random() < _REAL_SHARE else SIMULATED
        hook = random.choice(BEHAVIOURS) if random.random() < _HOOKED else ""
        seen = await self._submit(http, endpoint, hook)
        if seen is None:
            return
        fate = random.random()
        if fate < _HANGING_UP:
            await self._hang_up(http, seen)
        elif fate < _HANGING_UP + _CANCELLED:
            await self._cancel(http, seen)
        await self._follow(http, seen)

    async def _submit(self, http: httpx2.AsyncClient, endpoint: str, hook: str) -> Seen | None:
        """Repeats itself, with one idempotency key, until it knows: accepted, or refused."""
        body: dict[str, Any] = {
            "prompt": "a red star",
            "width": 256,
            "height": 256,
            "seed": self.random.randrange(2**32),
        }
        body |= {"steps": self.random.randint(2, _MOST_STEPS)} if endpoint == SIMULATED else {"disable_pup": True}
        if hook:
            body |= {"webhook_url": self.receivers[hook].url, "webhook_secret": SECRET}
        headers = {"Idempotency-Key": str(uuid.UUID(int=self.random.getrandbits(128), version=4))}
        give_up = time.monotonic() + _PATIENCE_S
        while time.monotonic() < give_up:
            try:
                answer = await http.post(f"/v1/{endpoint}", json=body, headers=headers)
            except httpx2.HTTPError:
                await asyncio.sleep(_AGAIN_S)
                continue
            if answer.status_code == 200:
                seen = Seen(answer.json()["id"], endpoint, hook)
                self.journal.accepted[seen.id] = seen
                return seen
            self.journal.refused.append(Refusal(answer.status_code, "retry-after" in answer.headers, answer.text))
            if answer.status_code not in (429, 500, 502, 503, 504):
                return None
            await asyncio.sleep(_AGAIN_S)
        return None

    async def _follow(self, http: httpx2.AsyncClient, seen: Seen) -> None:
        wait = self.random.choice(_WAITS_S)
        give_up = time.monotonic() + _PATIENCE_S
        while time.monotonic() < give_up:
            answer = await self._poll(http, seen, wait)
            if answer is not None and answer["status"] in TERMINAL:
                return
            await asyncio.sleep(_AGAIN_S)

    async def _poll(self, http: httpx2.AsyncClient, seen: Seen, wait: float) -> dict[str, Any] | None:
        self.journal.polls += 1
        try:
            answer = await http.get("/v1/get_result", params={"id": seen.id, "wait": wait})
        except httpx2.HTTPError as problem:
            self.journal.trouble(type(problem).__name__)
            return None
        if answer.status_code != 200:
            self.journal.trouble(f"HTTP {answer.status_code}")
            return None
        seen.polls.append(answer.json())
        return seen.polls[-1]

    async def _hang_up(self, http: httpx2.AsyncClient, seen: Seen) -> None:
        """Is gone in the middle of a poll."""
        with contextlib.suppress(httpx2.HTTPError):
            await http.get("/v1/get_result", params={"id": seen.id, "wait": 10}, timeout=0.05)

    async def _cancel(self, http: httpx2.AsyncClient, seen: Seen) -> None:
        seen.cancelled = True  # perhaps: the answer may get lost
        with contextlib.suppress(httpx2.HTTPError):
            await http.delete(f"/v1/tasks/{seen.id}")


def connected(base_url: str, key: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=base_url,
        headers={"x-key": key},
        timeout=_ANSWER_S + max(_WAITS_S),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
        trust_env=False,
    )
