"""Requests on their way: so many at a time, or at moments fixed beforehand."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from PIL import Image

from benchmarks.peers.request import Request


@dataclass(slots=True)
class Asked:
    """One request and what became of it. Times are epoch seconds of the client's clock."""

    request: Request
    scheduled: float
    """When it was, or should have been, sent."""
    accepted: float | None = None
    """When an id was there, for sides that give one."""
    done: float | None = None
    """When the client knew that the picture was there."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the side tells of its work."""
    address: str = ""
    """Where the picture is, if it was not the answer itself."""
    jpeg: bytes = b""
    problem: str = ""
    """What the client saw instead of a picture."""
    timed_out: bool = False
    """Whether it saw nothing at all."""

    @classmethod
    def now(cls, request: Request) -> Self:
        return cls(request, time.time())

    @property
    def drawn(self) -> bool:
        """Whether the picture is there, and of the size that was asked for."""
        if not self.jpeg:
            return False
        with Image.open(io.BytesIO(self.jpeg)) as picture:
            return picture.size == (self.request.width, self.request.height)

    @property
    def total(self) -> float | None:
        """Seconds from the moment it should have been sent, so that a client that falls behind hides nothing."""
        return None if self.done is None else self.done - self.scheduled

    @property
    def started(self) -> float | None:
        """When the model began with it, by the side's clock."""
        return self.facts.get("started")


Ask: TypeAlias = Callable[[Asked], Awaitable[None]]
"""Sends the request and follows it to its end."""


async def at_a_time(ask: Ask, requests: Iterable[Request], clients: int) -> tuple[list[Asked], float]:
    """So many clients, each with its next request when it has its last picture. Also how many seconds that took."""
    source = iter(requests)
    asked: list[Asked] = []

    async def work() -> None:
        for request in source:
            asked.append(one := Asked.now(request))
            await ask(one)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(clients)))
    return asked, time.perf_counter() - began


async def at_moments(ask: Ask, requests: Sequence[Request], moments: Sequence[float]) -> list[Asked]:
    """Each request at its moment, seconds from now, whatever became of those before. In their order."""
    epoch, zero = time.time(), time.monotonic()
    asked = [Asked(request, epoch + moment) for request, moment in zip(requests, moments, strict=True)]

    async def arrive(one: Asked, moment: float) -> None:
        await asyncio.sleep(max(0.0, zero + moment - time.monotonic()))
        await ask(one)

    await asyncio.gather(*map(arrive, asked, moments))
    return asked
