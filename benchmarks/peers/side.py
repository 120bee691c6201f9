"""One of the setups that are compared: how it is started, asked, killed and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import httpx2
import psutil

from benchmarks.peers.answer import work_of
from benchmarks.peers.asked import Asked
from benchmarks.peers.request import Request
from benchmarks.processes import tree
from benchmarks.service import PROJECT, without_settings
from benchmarks.work import Work

_STOP_S = 30.0
_RETRY_S = 0.05


class Side(ABC):
    """A context manager; inside it the side's processes run, though they may not be ready yet."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self.folder = Path()
        self.model_pid: int | None = None
        """Of the process that drew the last picture, as far as the side tells."""
        self._opened = ExitStack()
        self._roots: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.folder = Path(self._opened.enter_context(tempfile.TemporaryDirectory(prefix="gen-peer-")))
        self._opened.callback(self._stop)
        try:
            self._start()
        except BaseException:
            self._opened.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @abstractmethod
    def _start(self) -> None:
        """Starts the processes, each by `_run`."""

    @abstractmethod
    async def carry(self, client: httpx2.AsyncClient, asked: Asked) -> None:
        """Sends the request and follows it until its picture is there. Raises httpx2.HTTPError or OSError."""

    async def fetch(self, client: httpx2.AsyncClient, asked: Asked) -> bytes:
        """The picture, where it was not the answer itself."""
        return await asyncio.to_thread(Path(asked.address).read_bytes)

    def victims(self) -> Mapping[str, Callable[[], list[int]]]:
        """Processes to kill together, by what they are called. Only those that something starts again."""
        return {}

    def work(self, asked: Asked) -> Work | None:
        """What the side's own process says that it did. None: it says nothing."""
        return work_of(asked.facts) if "work" in asked.facts else None

    @property
    def runs(self) -> bool:
        """Whether all that was started is still there."""
        return all(root.poll() is None for root in self._roots)

    def processes(self) -> list[psutil.Process]:
        return self._family()

    def memory_mib(self) -> float:
        """Proportional set size of all its processes."""
        held = 0.0
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                held += process.memory_full_info().pss / 2**20
        return held

    def log(self) -> str:
        """The end of what its processes wrote."""
        path = self.folder / "log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def _run(
        self, command: Sequence[str], environment: Mapping[str, str], *, talks: bool = False
    ) -> subprocess.Popen[bytes]:
        """With `talks` its standard input and output are pipes; else what it writes is logged, as errors always are."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=PROJECT,
                env={**without_settings(os.environ), "PYTHONPATH": str(PROJECT), **environment},
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else log,
                stderr=log,
            )
        self._roots.append(process)
        return process

    def _family(self) -> list[psutil.Process]:
        return [process for root in self._roots if root.poll() is None for process in tree(root.pid)]

    def _stop(self) -> None:
        """In order; what is left of the processes after that is ended by force."""
        family = self._family()
        for root in self._roots:
            if root.poll() is None:
                root.send_signal(signal.SIGTERM)
        give_up = time.monotonic() + _STOP_S
        for root in self._roots:
            with contextlib.suppress(subprocess.TimeoutExpired):
                root.wait(max(0.1, give_up - time.monotonic()))
        for straggler in psutil.wait_procs(family, timeout=1)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                straggler.kill()
        for root in self._roots:
            root.wait()
            if root.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    root.stdin.close()


class Queued(Side):
    """A side that answers with an id at once; the picture is asked for by that."""

    @abstractmethod
    async def submit(self, client: httpx2.AsyncClient, request: Request) -> str:
        """The address to poll. Raises httpx2.HTTPError."""

    @abstractmethod
    async def poll(self, client: httpx2.AsyncClient, address: str) -> Polled:
        """Raises httpx2.HTTPError."""

    @abstractmethod
    def front_cpu(self) -> float:
        """Seconds so far, user and system, of the processes between the client and the queue, the queue's own not."""

    async def pause(self, waited: float) -> None:
        """Between two polls, `waited` seconds after the submission's answer."""

    async def carry(self, client: httpx2.AsyncClient, asked: Asked) -> None:
        address = await self.submit(client, asked.request)
        asked.accepted = time.time()
        while asked.done is None:
            await self.pause(time.time() - asked.accepted)
            try:
                polled = await self.poll(client, address)
            except httpx2.HTTPError:  # says nothing about the task
                await asyncio.sleep(_RETRY_S)
                continue
            if polled.failure:
                raise OSError(polled.failure)
            if polled.address:
                asked.done, asked.address, asked.facts = time.time(), polled.address, polled.facts


@dataclass(frozen=True, slots=True)
class Polled:
    """With neither address nor failure there is nothing yet."""

    address: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    failure: str = ""


class Asking:
    """The clients of one stage. An asynchronous context manager."""

    def __init__(self, side: Side, limit: float) -> None:
        """`limit` is how many seconds a request may take; after that it counts as one without a picture."""
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=256)
        self.client = httpx2.AsyncClient(timeout=None, limits=limits, trust_env=False)
        self.side = side
        self._limit = limit

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()

    async def ask(self, asked: Asked) -> None:
        """To the end, whichever that is."""
        try:
            async with asyncio.timeout(self._limit):
                await self.side.carry(self.client, asked)
        except TimeoutError:
            asked.problem, asked.timed_out = f"nothing for {self._limit:g} s", True
        except httpx2.HTTPStatusError as problem:
            asked.problem = f"HTTP {problem.response.status_code}"
        except httpx2.HTTPError as problem:
            asked.problem = type(problem).__name__
        except OSError as problem:
            asked.problem = str(problem)
        self.side.model_pid = asked.facts.get("pid", self.side.model_pid)

    async def ask_until_drawn(self, request: Callable[[], Asked]) -> Asked:
        """The first picture of a side that is still starting. Raises RuntimeError."""
        give_up, seen = time.monotonic() + self._limit, ""
        while time.monotonic() < give_up and self.side.runs:
            asked = request()
            await self.ask(asked)
            await self.collect([asked])
            if asked.drawn:
                return asked
            seen = asked.problem
            await asyncio.sleep(_RETRY_S)
        raise RuntimeError(f"{self.side.name} drew nothing ({seen}):\n{self.side.log()}")

    async def collect(self, asked: Sequence[Asked]) -> None:
        """Fetches the pictures that were not answers themselves."""
        for one in asked:
            if one.address and not one.jpeg:
                one.jpeg = await self.side.fetch(self.client, one)
