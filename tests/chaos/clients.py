"""Clients that send tasks and follow them, each in its own manner, and note every answer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from chaos.journal import Journal, Refusal, Seen
from chaos.receivers import SECRET, Receiver
from chaos.schedule import SIMULATED, Manner, Offer

TERMINAL: Final = frozenset({"Ready", "Error", "Request Moderated", "Content Moderated"})
_ANSWER_S: Final = 15.0
_LONGEST_WAIT_S: Final = 10
_AGAIN_S: Final = 0.3
_PATIENCE_S: Final = 180.0
"""How long a client tries to get a task accepted, or waits for its end."""


@dataclass(slots=True)
class Clients:
    base_url: str
    key: str
    receivers: Mapping[str, Receiver]
    journal: Journal
    canaries: Iterator[Offer]

    async def send(self, http: httpx2.AsyncClient, offers: Sequence[Offer]) -> None:
        """Sends each at its moment, and returns when all have been followed."""
        began = time.monotonic()
        following: list[asyncio.Task[None]] = []
        for offer in offers:
            await asyncio.sleep(max(0.0, began + offer.at_s - time.monotonic()))
            following.append(asyncio.create_task(self._one(http, offer)))
        await asyncio.gather(*following)

    async def canary(self, http: httpx2.AsyncClient) -> None:
        """A task with a webhook, followed until it is ready and its receiver has heard of it."""
        offer = next(self.canaries)
        seen = await self._submit(http, offer)
        if seen is None:
            raise TimeoutError("no task was accepted any more")
        seen.canary = True
        await self._follow(http, seen, offer.wait_s)
        async with asyncio.timeout(_PATIENCE_S):
            while seen.id not in self.journal.delivered:
                await asyncio.sleep(0.05)

    async def _one(self, http: httpx2.AsyncClient, offer: Offer) -> None:
        seen = await self._submit(http, offer)
        if seen is None:
            return
        if offer.manner is Manner.HANGS_UP:
            await self._hang_up(http, seen)
        elif offer.manner is Manner.CANCELS:
            await self._cancel(http, seen)
        await self._follow(http, seen, offer.wait_s)

    async def _submit(self, http: httpx2.AsyncClient, offer: Offer) -> Seen | None:
        """Repeats itself, with one idempotency key, until it knows: accepted, or refused."""
        body: dict[str, Any] = {"prompt": "a red star", "width": 256, "height": 256, "seed": offer.seed}
        body |= {"steps": offer.steps} if offer.endpoint == SIMULATED else {"disable_pup": True}
        if offer.hook:
            body |= {"webhook_url": self.receivers[offer.hook].url, "webhook_secret": SECRET}
        headers = {"Idempotency-Key": offer.idempotency_key}
        give_up = time.monotonic() + _PATIENCE_S
        while time.monotonic() < give_up:
            try:
                answer = await http.post(f"/v1/{offer.endpoint}", json=body, headers=headers)
            except httpx2.HTTPError:
                await asyncio.sleep(_AGAIN_S)
                continue
            if answer.status_code == 200:
                seen = Seen(answer.json()["id"], offer.endpoint, offer.hook)
                self.journal.accepted[seen.id] = seen
                return seen
            self._note(answer)
            self.journal.refused.append(Refusal(answer.status_code, "retry-after" in answer.headers, answer.text))
            if answer.status_code not in (429, 500, 502, 503, 504):
                return None
            await asyncio.sleep(_AGAIN_S)
        return None

    async def _follow(self, http: httpx2.AsyncClient, seen: Seen, wait_s: int) -> None:
        give_up = time.monotonic() + _PATIENCE_S
        while time.monotonic() < give_up:
            answer = await self._poll(http, seen, wait_s)
            if answer is not None and answer["status"] in TERMINAL:
                return
            await asyncio.sleep(_AGAIN_S)

    async def _poll(self, http: httpx2.AsyncClient, seen: Seen, wait_s: int) -> dict[str, Any] | None:
        self.journal.polls += 1
        try:
            answer = await http.get("/v1/get_result", params={"id": seen.id, "wait": wait_s})
        except httpx2.HTTPError as problem:
            self.journal.trouble(type(problem).__name__)
            return None
        if answer.status_code != 200:
            self._note(answer)
            self.journal.trouble(f"HTTP {answer.status_code}")
            return None
        seen.polls.append(answer.json())
        return seen.polls[-1]

    def _note(self, answer: httpx2.Response) -> None:
        self.journal.answered(answer.status_code, "retry-after" in answer.headers, answer.text)

    async def _hang_up(self, http: httpx2.AsyncClient, seen: Seen) -> None:
        """Is gone in the middle of a poll."""
        with contextlib.suppress(httpx2.HTTPError):
            await http.get("/v1/get_result", params={"id": seen.id, "wait": _LONGEST_WAIT_S}, timeout=0.05)

    async def _cancel(self, http: httpx2.AsyncClient, seen: Seen) -> None:
        seen.cancelled = True  # perhaps: the answer may get lost
        with contextlib.suppress(httpx2.HTTPError):
            await http.delete(f"/v1/tasks/{seen.id}")


def connected(base_url: str, key: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=base_url,
        headers={"x-key": key},
        timeout=_ANSWER_S + _LONGEST_WAIT_S,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
        trust_env=False,
    )
