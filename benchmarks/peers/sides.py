"""The setups that are compared, each with its processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import httpx2
import psutil

from benchmarks.peers import environment
from benchmarks.peers.answer import FACTS
from benchmarks.peers.asked import Asked
from benchmarks.peers.request import Request
from benchmarks.peers.settings import PeerSettings
from benchmarks.peers.side import Polled, Queued, Side
from benchmarks.processes import tree
from benchmarks.service import ENDPOINT, MODEL, PROJECT, UNLIMITED, Service
from serve_app.local.embedded_redis import EmbeddedRedis
from serve_app.local.free_ports import free_port
from serve_app.tasks.task import TERMINAL, Status

_KEPT = PROJECT / ".peers"
_FOREVER = 'while true; do "$@"; sleep 0.1; done'
"""What systemd does with `Restart=always`, after its usual pause."""
_WAIT_S = 10
_FIRST_POLL_S, _POLL_SHARE = 0.02, 0.1
"""A client that polls waits a tenth of what it has waited in all: its own part of a waiting time is a tenth at most,
and it never polls a busy server to death."""


class Peer(Side):
    """A side whose programs are in this folder."""

    def __init__(self, checkpoint: str, threads: int, max_batch: int) -> None:
        super().__init__()
        self._checkpoint, self._threads, self._max_batch = checkpoint, threads, max_batch
        self._port = free_port()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _settings(self, redis_url: str = "") -> PeerSettings:
        return PeerSettings(
            checkpoint=self._checkpoint,
            threads=self._threads,
            max_batch=self._max_batch,
            batch_wait_s=0.01,
            folder=str(self.folder),
            port=self._port,
            redis_url=redis_url,
        )


class Loop(Peer):
    """The yardstick. Requests wait in its standard input."""

    name = "loop"

    def _start(self) -> None:
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[dict[str, Any]]]] = deque()
        command = [sys.executable, "-m", "benchmarks.peers.loop"]
        self._process = self._run(command, self._settings().as_environment(), talks=True)
        self._ears = threading.Thread(target=self._hear, daemon=True)
        self._ears.start()

    async def carry(self, client: httpx2.AsyncClient, asked: Asked) -> None:
        assert self._process.stdin is not None
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._waiting.append((loop, answer))
        self._process.stdin.write(json.dumps(asked.request.as_json()).encode() + b"\n")
        self._process.stdin.flush()
        asked.facts = await answer
        asked.done, asked.address = time.time(), asked.facts["path"]

    def _hear(self) -> None:
        """A thread of its own. Answers come in the order of the requests."""
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                if line.startswith(b"{"):
                    loop, answer = self._waiting.popleft()
                    loop.call_soon_threadsafe(_answer, answer, json.loads(line))


class Synchronous(Peer):
    """A request waits for its picture."""

    async def carry(self, client: httpx2.AsyncClient, asked: Asked) -> None:
        response = await client.post(f"{self.base_url}/pictures", json=asked.request.as_json())
        response.raise_for_status()
        asked.done, asked.jpeg = time.time(), response.content
        asked.facts = json.loads(response.headers[FACTS])

    def victims(self) -> Mapping[str, Callable[[], list[int]]]:
        return {"model": lambda: [self.model_pid] if self.model_pid else []}


class RayBatch(Synchronous):
    name = "ray serve"

    def _start(self) -> None:
        token = {"RAY_AUTH_TOKEN": secrets.token_hex(32)}  # else Ray makes one, and leaves it in the home folder
        self._run([sys.executable, "-m", "benchmarks.peers.ray_batch"], self._settings().as_environment() | token)


class LitServe(Synchronous):
    name = "litserve"

    def _start(self) -> None:
        python = str(environment.python(_KEPT))
        self._run([python, "-m", "benchmarks.peers.litserve_app"], self._settings().as_environment())


class CeleryStack(Peer, Queued):
    """A web server, a worker, and a server for their queue that takes the same care of its data as the service's."""

    name = "celery"
    _APP: ClassVar = "benchmarks.peers.celery_app"

    def _start(self) -> None:
        self._queue = EmbeddedRedis(self.folder / "redis")
        self._queue.start()
        self._opened.callback(self._queue.stop)
        python = str(environment.python(_KEPT))
        told = self._settings(self._queue.url).as_environment()
        worker = f"-m celery -A {self._APP} worker --concurrency 1 --loglevel warning"
        self._run(["bash", "-c", _FOREVER, "worker", python, *worker.split()], told)
        web = f"-m uvicorn {self._APP}:web --host 127.0.0.1 --port {self._port} --no-access-log --log-level warning"
        self._web = self._run([python, *web.split()], told)

    async def submit(self, client: httpx2.AsyncClient, request: Request) -> str:
        response = await client.post(f"{self.base_url}/pictures", json=request.as_json())
        response.raise_for_status()
        return f"{self.base_url}/pictures/{response.json()['id']}"

    async def poll(self, client: httpx2.AsyncClient, address: str) -> Polled:
        response = await client.get(address)
        response.raise_for_status()
        answer = response.json()
        if answer["status"] == "SUCCESS":
            return Polled(answer["result"]["path"], answer["result"])
        return Polled(failure="FAILURE") if answer["status"] == "FAILURE" else Polled()

    async def pause(self, waited: float) -> None:
        await asyncio.sleep(max(_FIRST_POLL_S, _POLL_SHARE * waited))

    def front_cpu(self) -> float:
        return sum(times.user + times.system for times in (one.cpu_times() for one in tree(self._web.pid)))

    def victims(self) -> Mapping[str, Callable[[], list[int]]]:
        """The process of the pool that holds the model; or that and its parent, as when a machine or container ends."""

        def model() -> list[int]:
            return [self.model_pid] if self.model_pid else []

        def worker() -> list[int]:
            return [above.pid for pid in model() for above in (psutil.Process(pid).parent(),) if above] + model()

        return {"model": model, "model and dispatcher": worker}

    def processes(self) -> list[psutil.Process]:
        own = super().processes()
        return own + tree(self._queue.pid) if self._queue.pid else own


class ThisService(Queued):
    """As `configs/local.yaml` has it, moderation and previews included, but rendered at the size that is asked for."""

    name = "gen-serve"

    def __init__(self) -> None:
        super().__init__()
        model = json.dumps({"render_side": None})
        self._service = Service(UNLIMITED | {f"GEN_MODELS__{MODEL}": model})

    def _start(self) -> None:
        self._opened.enter_context(self._service)

    async def submit(self, client: httpx2.AsyncClient, request: Request) -> str:
        body = request.as_json() | {"output_format": "jpeg"}
        response = await client.post(f"{self._service.base_url}/v1/{ENDPOINT}", json=body, headers=self._headers)
        response.raise_for_status()
        return response.json()["polling_url"]

    async def poll(self, client: httpx2.AsyncClient, address: str) -> Polled:
        """Waits at the server, up to so many seconds."""
        url = httpx2.URL(address).copy_merge_params({"wait": _WAIT_S})
        response = await client.get(url, headers=self._headers)
        response.raise_for_status()
        task = response.json()
        if task["status"] == "Ready":
            return Polled(task["result"]["sample"], {"started": task["result"]["start_time"]})
        return Polled(failure=task["status"]) if Status(task["status"]) in TERMINAL else Polled()

    async def fetch(self, client: httpx2.AsyncClient, asked: Asked) -> bytes:
        response = await client.get(asked.address)
        response.raise_for_status()
        return response.content

    def front_cpu(self) -> float:
        used = self._service.cpu()
        return used.get("ingress", 0.0) + used.get("proxy", 0.0)

    def victims(self) -> Mapping[str, Callable[[], list[int]]]:
        """The replica that holds the model; or that and all dispatchers, which stand for a worker's parent."""

        def model() -> list[int]:
            return self._titled(f"ray::ServeReplica:gen:{MODEL}")

        return {
            "model": model,
            "model and dispatcher": lambda: self._titled("ray::ServeReplica:gen:Dispatcher") + model(),
        }

    def processes(self) -> list[psutil.Process]:
        return tree(self._service.pid)

    @property
    def _headers(self) -> dict[str, str]:
        return {"x-key": self._service.key}

    def _titled(self, start: str) -> list[int]:
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if " ".join(process.cmdline()).startswith(start):
                    found.append(process.pid)
        return found


def _answer(waiting: asyncio.Future[dict[str, Any]], facts: dict[str, Any]) -> None:
    if not waiting.done():  # nobody waits any more
        waiting.set_result(facts)
