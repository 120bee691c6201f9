"""A closed loop of HTTP requests: so many connections, each sending its next request when it has its last answer.

It runs in the benchmark's own process, never in a server's, and parses no more of an answer than it must, because it
shares the machine's cores with what it measures. A closed loop finds throughput and cost; its latencies are those of
a service that is always busy, and say nothing about an idle one.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


@dataclass(slots=True)
class Round:
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    """Seconds, of the requests that were answered with 200."""
    failed: int = 0

    @property
    def rate(self) -> float:
        """Requests per second that were answered with 200."""
        return len(self.latencies) / self.seconds


def get(base_url: str, path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {urlsplit(base_url).netloc}\r\n\r\n".encode()


def post(base_url: str, path: str, key: str, body: object) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {urlsplit(base_url).netloc}\r\nx-key: {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def drive(base_url: str, requests: list[bytes], *, concurrency: int, seconds: float) -> Round:
    """Sends `requests` over and over for `seconds`. Raises ConnectionError when the server hangs up."""
    outcome = Round()
    source = cycle(requests)
    began = time.perf_counter()
    await asyncio.gather(*(_work(base_url, source, began + seconds, outcome) for _ in range(concurrency)))
    outcome.seconds = time.perf_counter() - began
    return outcome


async def _work(base_url: str, source: Iterator[bytes], until: float, outcome: Round) -> None:
    address = urlsplit(base_url)
    loop = asyncio.get_running_loop()
    transport, connection = await loop.create_connection(_Connection, address.hostname or "", address.port or 80)
    try:
        while (sent := time.perf_counter()) < until:
            transport.write(next(source))
            if await connection.answer() == 200:
                outcome.latencies.append(time.perf_counter() - sent)
            else:
                outcome.failed += 1
    finally:
        transport.close()


class _Connection(asyncio.Protocol):
    """One request at a time; answers must say how long they are."""

    def __init__(self) -> None:
        self._received = b""
        self._waiter: asyncio.Future[int] | None = None

    def answer(self) -> asyncio.Future[int]:
        """The status of the next answer, once all of it is here."""
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def data_received(self, data: bytes) -> None:
        self._received += data
        head = self._received.find(b"\r\n\r\n")
        if head < 0 or self._waiter is None:
            return
        length = _LENGTH.search(self._received, 0, head + 2)
        if length is None:
            self._waiter.set_exception(ConnectionError("an answer of unknown length"))
        elif len(self._received) >= head + 4 + int(length[1]):
            status = int(self._received[9:12])
            self._received = b""
            self._waiter.set_result(status)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(ConnectionError("the server hung up"))
