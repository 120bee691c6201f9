"""Cost of thousands of waiting polls: CPU, memory and Redis commands beyond those of the service at rest.

The tasks never finish. The latency of a plain poll meanwhile shows how other clients fare.
"""

from __future__ import annotations

import asyncio
import resource
import time
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis
from rich.console import Console

from benchmarks.cost import BODY
from benchmarks.harness import Benchmark, Goal, Interval, Report
from benchmarks.processes import spent
from benchmarks.service import ENDPOINT, MODEL, UNLIMITED, Service

SETTINGS: Final = UNLIMITED | {
    f"GEN_MODELS__{MODEL}__CHECKPOINT".upper(): "simulated/600000ms",
    "GEN_SERVICE__MAX_ONGOING_REQUESTS": "20000",
}
_PER_TASK: Final = 8
_CONNECT_BATCH: Final = 100


@dataclass(frozen=True, slots=True)
class WaitingPlan:
    polls: int = 7_000
    """Waiting polls. The proxy reserves 2.5 descriptors for each, and most systems allow 20,000; further connections
    would wait until another poll is answered."""
    seconds: float = 40.0
    """Seconds of the measurement, once all polls wait."""


def measure(plan: WaitingPlan, console: Console) -> Report:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * plan.polls + 1000)), hard))
    console.print("starting a service")
    with Service(SETTINGS) as service, service.client() as client:
        ids = [client.submit(ENDPOINT, BODY)["id"] for _ in range(-(-plan.polls // _PER_TASK))]
        with Redis.from_url(service.redis_url) as redis:
            time.sleep(min(5.0, plan.seconds))
            before = _reading(service, redis)
            time.sleep(plan.seconds / 2)
            resting = _rates(before, _reading(service, redis))
            metrics = asyncio.run(_wait(service, redis, ids, plan, resting, console))
    return Report(metrics, goals(metrics))


def goals(metrics: dict[str, Any]) -> list[Goal]:
    many, factor = "services with many waiting clients", 10_000 / metrics["polls"]
    return [
        Goal("10,000 waiting polls: CPU of the ingress", many, factor * metrics["ingress_cores"], 1, "cores"),
        Goal("10,000 waiting polls: memory of the ingress", many, factor * metrics["ingress_mib"], 300, "MiB"),
        Goal("10,000 waiting polls: Redis commands", many, factor * metrics["redis_commands_per_s"], 500, "per second"),
        Goal("7,000 waiting polls: a plain one beside them, median", many, metrics["poll_ms"], 50, "ms"),
    ]


async def _wait(
    service: Service, redis: Redis, ids: list[str], plan: WaitingPlan, resting: dict[str, float], console: Console
) -> dict[str, Any]:
    memory, answered = service.memory(), 0

    async def poll(task_id: str) -> None:
        nonlocal answered
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            try:
                path = f"/v1/get_result?id={task_id}&wait=60"
                writer.write(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{service.port}\r\n\r\n".encode())
                await reader.read(1)
                answered += 1
            finally:
                writer.transport.abort()

    waits = []
    for number in range(plan.polls):
        waits.append(asyncio.create_task(poll(ids[number // _PER_TASK])))
        if number % _CONNECT_BATCH == _CONNECT_BATCH - 1:
            await asyncio.sleep(0.5)
    console.print(f"{plan.polls} polls wait")
    before = await asyncio.to_thread(_reading, service, redis)
    await asyncio.sleep(plan.seconds)
    rates = _rates(before, await asyncio.to_thread(_reading, service, redis))
    memory_after = service.memory()
    latencies = [await asyncio.to_thread(_poll_ms, service, ids[0]) for _ in range(20)]
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    return {
        "polls": plan.polls,
        "answered_meanwhile": answered,
        "ingress_cores": round(rates.get("ingress", 0) - resting.get("ingress", 0), 3),
        "proxy_cores": round(rates.get("proxy", 0) - resting.get("proxy", 0), 3),
        "redis_cores": round(rates.get("redis", 0) - resting.get("redis", 0), 3),
        "ingress_mib": round(memory_after["ingress"] - memory["ingress"], 1),
        "proxy_mib": round(memory_after["proxy"] - memory["proxy"], 1),
        "redis_commands_per_s": round(rates["commands"] - resting["commands"], 1),
        "poll_ms": round(Interval.bootstrap_median(latencies).middle, 2),
    }


def _reading(service: Service, redis: Redis) -> tuple[float, dict[Any, float], int]:
    commands: Any = redis.info("stats")
    return time.monotonic(), dict(service.cpu()), int(commands["total_commands_processed"])


def _rates(before: tuple[float, dict[Any, float], int], after: tuple[float, dict[Any, float], int]) -> dict[str, float]:
    """Returns CPU cores by role and, as `commands`, Redis commands per second."""
    seconds = after[0] - before[0]
    by_role = spent(before[1], after[1])
    return {role: cpu / seconds for role, cpu in by_role.items()} | {"commands": (after[2] - before[2]) / seconds}


def _poll_ms(service: Service, task_id: str) -> float:
    with service.client() as client:
        started_at = time.monotonic()
        client.poll(task_id)
        return 1000 * (time.monotonic() - started_at)


BENCHMARK = Benchmark(
    "waiting",
    "thousands of waiting polls: CPU, memory, Redis commands",
    WaitingPlan(),
    WaitingPlan(polls=16, seconds=2.0),
    measure,
)
