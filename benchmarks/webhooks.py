"""How soon a webhook arrives.

First on an idle service, one task after the other: from the end of the task (`end_time` of the result) to the moment
the receiver has the body, by one machine's clock. Then the same while a receiver that accepts connections and never
answers has a thousand deliveries due: it must not hold up the other one. The model is simulated.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import httpx2
from gen_serve_bench.results import Spread
from rich.console import Console
from rich.progress import track

from benchmarks.benchmark import Benchmark
from benchmarks.interval import Interval
from benchmarks.report import Report, Target
from benchmarks.service import ENDPOINT, UNLIMITED, Service

BODY: Final = {"prompt": "a red star", "width": 64, "height": 64, "steps": 1, "seed": 1}
SETTINGS: Final = UNLIMITED | {
    "GEN_MODELS__FLUX3-KLEIN__CHECKPOINT": "simulated/1ms",
}
_ARRIVES_S: Final = 30.0
_AT_ONCE: Final = 16


class Receiver:
    """Notes when which task's webhook came."""

    def __init__(self) -> None:
        self.came: dict[str, float] = {}
        self._news = threading.Condition()

    def note(self, task_id: str) -> None:
        with self._news:
            self.came[task_id] = time.time()
            self._news.notify_all()

    def wait(self, task_id: str) -> float:
        with self._news:
            if not self._news.wait_for(lambda: task_id in self.came, _ARRIVES_S):
                raise RuntimeError(f"the webhook of {task_id} did not arrive")
            return self.came[task_id]


@contextmanager
def receiving(receiver: Receiver) -> Iterator[str]:
    """The URL of a receiver that answers at once."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            receiver.note(json.loads(self.rfile.read(int(self.headers["content-length"])))["id"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: a line per call would be part of what is measured."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def hanging() -> Iterator[str]:
    """The URL of a receiver that takes every connection and never answers: nobody accepts from its backlog."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook"


@dataclass(frozen=True, slots=True)
class Plan:
    webhooks: int = 300
    """That count, in each of the two parts."""
    dead: int = 1000
    """Deliveries that a receiver which hangs has due."""


def measure(plan: Plan, console: Console) -> Report:
    receiver = Receiver()
    console.print("starting a service")
    with Service(SETTINGS) as service, receiving(receiver) as url, hanging() as abyss:
        _delays(service, receiver, url, 5, console, "warming up")
        idle = _delays(service, receiver, url, plan.webhooks, console, "idle")
        console.print(f"{plan.dead} tasks for a receiver that never answers")
        asyncio.run(_submit(service, abyss, plan.dead))
        beside = _delays(service, receiver, url, plan.webhooks, console, "beside it")
    calm, busy = Spread.of(idle), Spread.of(beside)
    assert calm is not None
    assert busy is not None
    return Report(
        figures={"idle_ms": calm.as_json(), "beside_a_dead_receiver_ms": busy.as_json()},
        targets=[
            Target("end of a task to its webhook, idle, p99", calm.p99, 1000, "ms"),
            Target("the same beside a receiver that hangs, median / idle", Interval.of_ratio(beside, idle), 1.1, "x"),
        ],
    )


def _delays(service: Service, receiver: Receiver, url: str, n: int, console: Console, what: str) -> list[float]:
    """Milliseconds."""
    delays: list[float] = []
    with service.client() as client:
        for _ in track(range(n), what, console=console):
            task_id = client.submit(ENDPOINT, BODY | {"webhook_url": url})["id"]
            came = receiver.wait(task_id)
            delays.append(1000 * (came - client.wait(task_id).facts["end_time"]))
    return delays


async def _submit(service: Service, url: str, n: int) -> None:
    """And waits until all have ended, so that nothing but their deliveries goes on."""
    limit = asyncio.Semaphore(_AT_ONCE)
    async with httpx2.AsyncClient(base_url=service.base_url, headers={"x-key": service.key}, timeout=60) as http:

        async def one() -> None:
            async with limit:
                answer = await http.post(f"/v1/{ENDPOINT}", json=BODY | {"webhook_url": url})
                await http.get(answer.json()["polling_url"], params={"id": answer.json()["id"], "wait": 60})

        await asyncio.gather(*(one() for _ in range(n)))


BENCHMARK = Benchmark(
    "webhooks",
    "from the end of a task to its webhook, alone and beside a receiver that hangs",
    Plan(),
    Plan(webhooks=3, dead=5),
    measure,
)
