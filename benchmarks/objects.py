"""Cost of a result in an S3-compatible object store: requests, and the time until the client has the result.

The store is moto's server in a separate environment. A service on it and one on a folder alternate. Clouds charge
mostly for class-A requests: PUT, COPY, POST and LIST.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx2
from rich.console import Console

from benchmarks.cost import BODY
from benchmarks.cost import SETTINGS as SIMULATED
from benchmarks.harness import Benchmark, Goal, Report
from benchmarks.service import ENDPOINT, Service
from serve_app.launcher.embedded_redis import free_port

_MOTO: Final = "moto[s3,server]==5.2.5"
_REQUEST: Final = re.compile(r'"(?P<method>[A-Z]+) (?P<path>/[^ ?]*)(?P<query>\?[^ ]*)? HTTP/1\.[01]" 2\d\d')
_START_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class ObjectsPlan:
    tasks: int = 200
    rounds: int = 5
    sweep_s: float = 15.0
    """Seconds after the tasks in which the service's later requests still count."""


def measure(plan: ObjectsPlan, console: Console) -> Report:
    latencies: dict[str, list[float]] = {"s3": [], "folder": []}
    with _s3() as (options, log):
        console.print("starting a service on each store")
        s3 = {"GEN_OBJECTS__URL": "s3://bucket/gen", "GEN_OBJECTS__OPTIONS": options}
        with Service(SIMULATED | s3) as on_s3, Service(SIMULATED) as on_folder:
            for service in (on_s3, on_folder):
                _carry(service, 3)  # warm
            time.sleep(plan.sweep_s)
            before = _requests(log)
            for number in range(plan.rounds):
                latencies["s3"] += _carry(on_s3, plan.tasks // plan.rounds)
                latencies["folder"] += _carry(on_folder, plan.tasks // plan.rounds)
                console.print(f"round {number + 1} of {plan.rounds}")
            time.sleep(plan.sweep_s)
            counts = _requests(log) - before
    tasks = len(latencies["s3"])
    class_a = sum(counts[method] for method in ("PUT", "COPY", "POST", "LIST"))
    metrics = {
        "requests_per_image": {method: round(count / tasks, 2) for method, count in sorted(counts.items())},
        "class_a_per_image": round(class_a / tasks, 2),
        "result_ms": {side: round(median(values), 1) for side, values in latencies.items()},
    }
    return Report(metrics, goals(metrics))


def goals(metrics: dict[str, Any]) -> list[Goal]:
    return [Goal("class-A requests per image", "the cloud's bill", metrics["class_a_per_image"], 3, "")]


def _carry(service: Service, count: int) -> list[float]:
    """Runs tasks one after the other. Returns the milliseconds from the submission to the result of each."""
    latencies_ms: list[float] = []
    with service.client() as client:
        for number in range(count):
            started_at = time.monotonic()
            client.wait(client.submit(ENDPOINT, BODY | {"seed": number})["id"])
            latencies_ms.append(1000 * (time.monotonic() - started_at))
    return latencies_ms


@contextmanager
def _s3() -> Iterator[tuple[str, Path]]:
    """Runs the S3 server. Yields the JSON options that open its bucket, and its log file."""
    port, uv = free_port(), Path(sys.executable).with_name("uv")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "moto.log"
        command = [str(uv), "tool", "run", "--from", _MOTO, "moto_server", "-p", str(port)]
        with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as server:
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + _START_S
            while True:
                try:
                    httpx2.put(f"{url}/bucket", trust_env=False)
                    break
                except httpx2.TransportError:
                    if server.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError(f"no S3 server: {log.read_text()[-500:]}") from None
                    time.sleep(0.2)
            try:
                options = {
                    "endpoint": url,
                    "region": "us-east-1",
                    "access_key_id": "key",
                    "secret_access_key": "secret",
                    "client_options": {"allow_http": True},
                }
                yield json.dumps(options), log
            finally:
                server.terminate()


def _requests(log: Path) -> Counter[str]:
    """Counts the successful requests by method. The log does not tell copies from other PUTs."""
    counts: Counter[str] = Counter()
    for match in _REQUEST.finditer(log.read_text(errors="replace")):
        listing = match["method"] == "GET" and "list-type" in (match["query"] or "")
        counts["LIST" if listing else match["method"]] += 1
    return counts


BENCHMARK = Benchmark(
    "objects",
    "results in an S3-compatible store: requests and latency",
    ObjectsPlan(),
    ObjectsPlan(tasks=2, rounds=1, sweep_s=1.0),
    measure,
)
