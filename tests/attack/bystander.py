"""Another organization's client, in a process of its own, that polls and submits and notes how long it waits.

It asks at fixed moments, whether or not it has been answered, so that one long silence is many long waits.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import httpx2
from support.pictures import encoded, picture

_TESTS: Final = Path(__file__).parents[1]
_POLL_EVERY_S: Final = 0.04
_SUBMIT_EVERY_S: Final = 0.2
_GIVES_UP_S: Final = 60.0
_AT_A_TIME: Final = 64
"""With so many requests on their way it holds its breath: it is there to be harmed, not to do harm."""
_REUSED_S: Final = 2.0
"""A connection is not used again once the service may be about to close it, which would look like harm."""
_ENDPOINT: Final = "/v1/gen-3-image-klein"


@dataclass(frozen=True, slots=True)
class Waited:
    at: float
    """Monotonic clock, seconds: the same in all processes of this machine."""
    seconds: float
    trouble: str = ""
    """Why it was not served."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds."""

    p50: float
    p99: float
    worst: float
    requests: int
    troubles: Sequence[str]

    @classmethod
    def of(cls, waits: Sequence[Waited]) -> Delays:
        seconds = [wait.seconds for wait in waits]
        troubles = [wait.trouble for wait in waits if wait.trouble]
        if len(seconds) < 2:
            return cls(0.0, 0.0, max(seconds, default=0.0), len(seconds), troubles)
        percent = quantiles(seconds, n=100, method="inclusive")
        return cls(percent[49], percent[98], max(seconds), len(seconds), troubles)


class Bystander:
    def __init__(self, log: Path) -> None:
        self._log = log

    def delays(self, since: float, until: float) -> Delays:
        """Of what it asked in that time, monotonic clock."""
        waits = [Waited(*json.loads(line)) for line in self._log.read_text().splitlines() if line.endswith("]")]
        return Delays.of([wait for wait in waits if since <= wait.at < until])


@contextmanager
def watching(base_url: str, key: str, folder: Path) -> Iterator[Bystander]:
    """Asks from now on, until the end."""
    log = folder / "bystander.log"
    with log.open("wb") as out:
        path = os.pathsep.join(filter(None, (str(_TESTS), os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(
            [sys.executable, "-m", "attack.bystander"],
            stdin=subprocess.PIPE,
            stdout=out,
            env=os.environ | {"PYTHONPATH": path},
        )
        assert process.stdin is not None
        # Not an argument: those can be read by everyone on the machine.
        process.stdin.write(json.dumps([base_url, key]).encode() + b"\n")
        process.stdin.flush()
        try:
            yield Bystander(log)
        finally:
            process.stdin.close()  # which it takes for the end
            process.wait(_GIVES_UP_S + 10)


async def _ask_on(base_url: str, key: str, over: asyncio.Event) -> None:
    body = {"prompt": "a cat", "images": [encoded(picture(16, 16))], "width": 64, "height": 64}
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=_AT_A_TIME, keepalive_expiry=_REUSED_S)
    headers = {"x-key": key}
    async with (
        httpx2.AsyncClient(
            base_url=base_url, headers=headers, timeout=_GIVES_UP_S, limits=limits, trust_env=False
        ) as http,
        asyncio.TaskGroup() as asked,
    ):
        polled = (await http.post(_ENDPOINT, json=body)).json()["id"]

        async def poll() -> None:
            await _timed(http, "GET", "/v1/get_result", params={"id": polled})

        async def submit() -> None:
            if (answer := await _timed(http, "POST", _ENDPOINT, json=body)) is not None:
                await http.delete(f"/v1/tasks/{answer.json()['id']}")

        free = asyncio.Semaphore(_AT_A_TIME)

        async def regularly(every_s: float, ask: Any) -> None:
            async def one() -> None:
                async with free:
                    await ask()

            while not over.is_set():
                asked.create_task(one())
                await asyncio.sleep(every_s)

        asked.create_task(regularly(_POLL_EVERY_S, poll))
        asked.create_task(regularly(_SUBMIT_EVERY_S, submit))


async def _timed(http: httpx2.AsyncClient, method: str, path: str, **request: Any) -> httpx2.Response | None:
    """The answer where it was served."""
    at = time.monotonic()
    answer, trouble = None, ""
    try:
        answer = await http.request(method, path, **request)
        if answer.status_code != 200:
            trouble, answer = f"HTTP {answer.status_code}: {answer.text[:100]}", None
    except httpx2.HTTPError as problem:
        trouble = type(problem).__name__
    print(json.dumps([at, time.monotonic() - at, trouble]), flush=True)
    return answer


async def _main() -> None:
    base_url, key = json.loads(sys.stdin.readline())
    over = asyncio.Event()
    asking = asyncio.create_task(_ask_on(base_url, key, over))
    await asyncio.to_thread(sys.stdin.read)
    over.set()
    await asking


if __name__ == "__main__":
    asyncio.run(_main())
