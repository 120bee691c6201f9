"""What uploads do to everybody else: polls of a task while forty pictures of 20 MB come in at once.

Polls go out at fixed moments, in an open loop, and are timed from those; first with nothing beside them, then from the
first upload's start to the last one's answer. Uploads come from a process of their own; one that is refused with a time
to come again comes again. Memory is the proportional set size of the ingress, its decoders included, sampled all the
while.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import cv2
import httpx2
import numpy as np
from gen_serve_bench.results import Spread
from rich.console import Console

from benchmarks.benchmark import Benchmark
from benchmarks.processes import memory_of
from benchmarks.report import Report, Target
from benchmarks.service import ENDPOINT, Service
from benchmarks.tasks import BODY, SETTINGS

_PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    uploads: int = 40
    megabytes: float = 19.5
    """Of the picture's file; base64 makes a third more of it."""
    idle_s: float = 15.0
    polls_per_s: float = 25.0


def measure(plan: Plan, console: Console) -> Report:
    console.print("starting a service")
    with (
        Service(SETTINGS) as service,
        TemporaryDirectory(prefix="gen-bench-") as folder,
        ProcessPoolExecutor(1, get_context("spawn")) as uploader,
        ThreadPoolExecutor(1) as sampler,
    ):
        body = Path(folder) / "body.json"
        body.write_text(json.dumps(BODY | {"images": [base64.b64encode(_noise(plan.megabytes)).decode()]}))
        uploader.submit(time.time).result()  # it has started, and imported what it needs
        with service.client() as client:
            polled = client.submit(ENDPOINT, BODY)["id"]
            client.wait(polled)
        answers: Counter[int] = Counter()

        def polls(ends: Future[Any]) -> list[float]:
            return asyncio.run(_polls(service, polled, plan.polls_per_s, ends, answers))

        polls(uploader.submit(time.sleep, 2.0))
        idle = polls(uploader.submit(time.sleep, plan.idle_s))
        console.print(f"{plan.uploads} uploads of {body.stat().st_size / 1e6:.1f} MB")
        over = Event()
        memory = sampler.submit(_most_memory, service, over)
        uploads = uploader.submit(upload_all, service.base_url, service.key, body, plan.uploads)
        beside = polls(uploads)
        over.set()
        return _report(idle, beside, answers, uploads.result(), memory.result())


def _report(
    idle: list[float], beside: list[float], answers: Counter[int], uploaded: tuple[list[str], float], most_mib: float
) -> Report:
    uploaded_as, seconds = uploaded
    calm, busy = Spread.of(idle), Spread.of(beside)
    assert calm is not None
    assert busy is not None
    faults = [f"{count} polls were answered with {code}" for code, count in answers.items() if code != 200]
    faults += [f"an upload was answered with {answer}" for answer in sorted(set(uploaded_as)) if answer]
    return Report(
        figures={
            "poll_idle_ms": calm.as_json(),
            "poll_beside_uploads_ms": busy.as_json(),
            "uploads_took_s": round(seconds, 1),
            "ingress_mib_at_most": round(most_mib),
        },
        targets=[
            Target("polls beside forty uploads of 20 MB, p99 / idle", busy.p99 / calm.p99, 3, "x"),
            Target("memory of the ingress meanwhile, at most", most_mib / 1024, 2, "GiB"),
        ],
        faults=faults,
    )


async def _polls(service: Service, task_id: str, rate: float, ends: Future[Any], answers: Counter[int]) -> list[float]:
    """Milliseconds from the moment each poll should have gone out, until `ends` is done."""
    waits: list[float] = []
    sent: set[asyncio.Task[None]] = set()
    began = time.monotonic()
    async with httpx2.AsyncClient(base_url=service.base_url, timeout=_PATIENCE_S, trust_env=False) as http:

        async def poll(moment: float) -> None:
            answer = await http.get("/v1/get_result", params={"id": task_id})
            answers[answer.status_code] += 1
            waits.append(1000 * (time.monotonic() - moment))

        while not ends.done() or not waits:
            moment = began + len(sent) / rate
            await asyncio.sleep(max(0.0, moment - time.monotonic()))
            sent.add(asyncio.create_task(poll(moment)))
        await asyncio.gather(*sent)
    return waits


def upload_all(base_url: str, key: str, body: Path, count: int) -> tuple[list[str], float]:
    """All at once, each again when it is told to come again: how each was refused in the end, and seconds."""
    os.nice(19)  # clients are elsewhere: what theirs cost must not slow the service down
    data = body.read_bytes()
    headers = {"x-key": key, "content-type": "application/json"}

    def one(_: int) -> str:
        give_up = time.monotonic() + _PATIENCE_S
        while True:
            answer = httpx2.post(
                f"{base_url}/v1/{ENDPOINT}", content=data, headers=headers, timeout=_PATIENCE_S, trust_env=False
            )
            if answer.status_code not in (429, 503) or time.monotonic() > give_up:
                return "" if answer.is_success else f"{answer.status_code}: {answer.text[:200]}"
            time.sleep(float(answer.headers["retry-after"]))

    began = time.monotonic()
    with ThreadPoolExecutor(count) as clients:
        refusals = list(clients.map(one, range(count)))
    return refusals, time.monotonic() - began


def _most_memory(service: Service, over: Event) -> float:
    """MiB of the ingress."""
    most = 0.0
    while not over.wait(0.5):
        most = max(most, memory_of(service.pid, "ingress"))
    return max(most, memory_of(service.pid, "ingress"))


def _noise(megabytes: float) -> bytes:
    """A PNG of about that size: noise does not compress."""
    side = round((megabytes * 1e6 / 3) ** 0.5)
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
    return cv2.imencode(".png", pixels, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes()


BENCHMARK = Benchmark(
    "uploads",
    "polls beside forty uploads of 20 MB, and the memory that they take",
    Plan(),
    Plan(uploads=2, megabytes=0.5, idle_s=0.5),
    measure,
)
