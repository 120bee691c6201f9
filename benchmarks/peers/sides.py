"""Sides of the comparison: how each one starts, serves a request, can be killed and stops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Final, Self

import httpx2
import psutil

from benchmarks.peers import environment
from benchmarks.peers.request import PID, PeerRequest, PeerSettings
from benchmarks.processes import stop, tree
from benchmarks.service import ENDPOINT, MODEL, PROJECT, UNLIMITED, Service, without_settings
from serve_app.launcher.embedded_redis import EmbeddedRedis, free_port
from serve_app.tasks.task import TERMINAL, Status

_CACHE: Final = PROJECT / ".peers"
_FOREVER: Final = 'while true; do "$@"; sleep 0.1; done'
"""Shell loop that restarts a command, as systemd does with `Restart=always`."""
_STOP_S, _RETRY_S = 30.0, 0.05
_FIRST_POLL_S, _POLL_FRACTION = 0.02, 0.1
"""Pause before a poll, in seconds and as a share of the wait so far: polling adds at most a tenth to a latency, and
does not overload a busy server."""


@dataclass(slots=True)
class PeerAttempt:
    """Request with its outcome. Times are epoch seconds of the client's clock."""

    request: PeerRequest
    scheduled: float
    """Time at which to send it. Latency counts from here, so that a slow client hides nothing."""
    accepted: bool = False
    """True once a side with a queue has answered with an id."""
    done: float | None = None
    jpeg: bytes = b""


class Peer:
    """Side that answers a request with its image. A context manager; inside it the processes run, maybe not yet ready.

    Its program is in this folder.
    """

    name: ClassVar[str]
    has_queue: ClassVar[bool] = False
    """True if it answers with an id."""
    restarts: ClassVar[bool] = True
    """True if the model's process restarts after its death."""

    def __init__(self, checkpoint: str, threads: int, max_batch: int) -> None:
        self._model_options = (checkpoint, str(threads), str(max_batch))
        self._stack = ExitStack()
        self._roots: list[subprocess.Popen[bytes]] = []
        self._port = free_port()
        self._model: int | None = None
        self.folder = Path()

    def __enter__(self) -> Self:
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gen-peer-")))
        self._stack.callback(stop, self._roots, _STOP_S)
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        raise NotImplementedError

    async def carry(self, client: httpx2.AsyncClient, attempt: PeerAttempt) -> None:
        """Sends the request and waits for its image. Raises httpx2.HTTPError or OSError."""
        answer = await client.post(f"http://127.0.0.1:{self._port}/images", json=asdict(attempt.request))
        answer.raise_for_status()
        attempt.done, attempt.jpeg = time.time(), answer.content
        self._model = int(answer.headers[PID])

    def model(self) -> list[int]:
        """Returns the ids of the processes that hold the model, if known."""
        return [self._model] if self._model else []

    def processes(self) -> list[psutil.Process]:
        return [process for root in self._roots if root.poll() is None for process in tree(root.pid)]

    def memory_mib(self) -> float:
        """Returns the proportional set size of all processes."""
        total = 0.0
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_full_info().pss / 2**20
        return total

    def log(self) -> str:
        """Returns the end of the processes' log."""
        path = self.folder / "log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def _run(self, command: Sequence[str], redis_url: str = "", extra: Mapping[str, str] | None = None) -> None:
        settings = PeerSettings(*self._model_options, str(self.folder), str(self._port), redis_url).as_environment()
        with (self.folder / "log").open("ab") as log:
            variables = {**without_settings(os.environ), "PYTHONPATH": f"{PROJECT}", **settings, **(extra or {})}
            self._roots.append(subprocess.Popen(command, cwd=PROJECT, env=variables, stdout=log, stderr=log))


class StockLoop(Peer):
    """Baseline: a script behind a socket."""

    name = "loop"
    restarts = False

    def _start(self) -> None:
        self._run([sys.executable, "-m", "benchmarks.peers.stock"])


class RayBatch(Peer):
    name = "ray serve"

    def _start(self) -> None:
        token = {"RAY_AUTH_TOKEN": secrets.token_hex(32)}  # else Ray makes one and leaves it in the home folder
        self._run([sys.executable, "-m", "benchmarks.peers.ray_batch"], extra=token)


class LitServe(Peer):
    name = "litserve"

    def _start(self) -> None:
        self._run([str(environment.python(_CACHE)), "-m", "benchmarks.peers.litserve_app"])


class CeleryStack(Peer):
    """Web server, worker and Redis, which is as durable as the service's."""

    name = "celery"
    has_queue = True
    _APP: ClassVar = "benchmarks.peers.celery_app"

    def _start(self) -> None:
        self._queue = EmbeddedRedis(self.folder / "redis")
        self._queue.start()
        self._stack.callback(self._queue.stop)
        python = str(environment.python(_CACHE))
        worker = f"-m celery -A {self._APP} worker --concurrency 1 --loglevel warning"
        self._run(["bash", "-c", _FOREVER, "worker", python, *worker.split()], self._queue.url)
        web = f"-m uvicorn {self._APP}:web --host 127.0.0.1 --port {self._port} --no-access-log --log-level warning"
        self._run([python, *web.split()], self._queue.url)

    async def carry(self, client: httpx2.AsyncClient, attempt: PeerAttempt) -> None:
        url, started_at = f"http://127.0.0.1:{self._port}/images", time.time()
        answer = await client.post(url, json=asdict(attempt.request))
        task_id, attempt.accepted = answer.raise_for_status().json()["id"], True
        while attempt.done is None:
            await asyncio.sleep(max(_FIRST_POLL_S, _POLL_FRACTION * (time.time() - started_at)))
            with contextlib.suppress(httpx2.HTTPError):  # a poll that fails says nothing about the task
                task = (await client.get(f"{url}/{task_id}")).raise_for_status().json()
                if task["status"] == "FAILURE":
                    raise OSError("FAILURE")
                if task["status"] == "SUCCESS":
                    attempt.done, self._model = time.time(), task["result"]["pid"]
                    attempt.jpeg = await asyncio.to_thread(Path(task["result"]["path"]).read_bytes)

    def processes(self) -> list[psutil.Process]:
        own = super().processes()
        return own + tree(self._queue.pid) if self._queue.pid else own


class ThisService(Peer):
    """Service with `configs/local.yaml`, moderation and previews included, but rendering at the requested size."""

    name = "gen-serve"
    has_queue = True

    def _start(self) -> None:
        self._service = Service(UNLIMITED | {f"GEN_MODELS__{MODEL}": json.dumps({"render_side": None})})
        self._stack.enter_context(self._service)

    async def carry(self, client: httpx2.AsyncClient, attempt: PeerAttempt) -> None:
        key, body = {"x-key": self._service.key}, asdict(attempt.request) | {"output_format": "jpeg"}
        answer = await client.post(f"{self._service.base_url}/v1/{ENDPOINT}", json=body, headers=key)
        url = httpx2.URL(answer.raise_for_status().json()["polling_url"]).copy_merge_params({"wait": 10})
        attempt.accepted = True
        while attempt.done is None:
            try:
                task = (await client.get(url, headers=key)).raise_for_status().json()
            except httpx2.HTTPError:
                await asyncio.sleep(_RETRY_S)
                continue
            if task["status"] == "Ready":
                attempt.done = time.time()
                attempt.jpeg = (await client.get(task["result"]["sample"])).raise_for_status().content
            elif Status(task["status"]) in TERMINAL:
                raise OSError(task["status"])

    def model(self) -> list[int]:
        pids = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if " ".join(process.cmdline()).startswith(f"ray::ServeReplica:gen:{MODEL}"):
                    pids.append(process.pid)
        return pids

    def processes(self) -> list[psutil.Process]:
        return tree(self._service.pid) if psutil.pid_exists(self._service.pid) else []
