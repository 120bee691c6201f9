"""One run: start the service, offer load, break things, wait until all is over, judge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import redis
from redis.asyncio import Redis
from support.local_service import LocalService

from chaos import verdict
from chaos.clients import Clients, connected
from chaos.faults import FAULTS
from chaos.journal import Journal, Suffered
from chaos.receivers import receiving
from chaos.verdict import Finding

_FIRST_FAULT_S, _LAST_FAULT_S = 3.0, 10.0
"""After the beginning of the load, and before its end."""
_PAUSE_S: Final = (1.0, 3.0)
_RECOVERY_LIMIT_S: Final = 90.0
_QUIET_LIMIT_S: Final = 120.0
_SETTINGS: Final[dict[str, Any]] = {
    "service": {"ingress_replicas": 2},
    "tasks": {"lease_s": 3, "max_active": 5000, "requests_per_s": 1000, "burst": 1000},
    "dispatcher": {"stall_s": 6, "start_s": 60},
    "webhooks": {
        "replicas": 1,
        "schedule_s": [0.5, 1, 2, 4, 8, 8, 8, 8, 8, 8],
        "timeout_s": 3,
        "claim_s": 3,
        "shut_s": 1,
        "most_shut_s": 4,
    },
    "models": {
        "flux3-klein": {"checkpoint": "simulated/100ms"},
        # Real pictures: loaded from the start, since loading takes longer than a short run.
        "flux2-pro": {"autoscaling": {"min_replicas": 1, "max_replicas": 1}},
    },
}


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    seconds: float = 300.0
    tasks: int = 1200
    faults: tuple[str, ...] = tuple(FAULTS)
    """Each happens once, in a random order, whatever time that takes; then again, as long as there is time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    plan: Plan
    journal: Journal
    findings: Sequence[Finding]
    took_s: float

    @property
    def kept(self) -> bool:
        return all(finding.kept for finding in self.findings)


def run(plan: Plan, folder: Path, repository: Path, say: Callable[[str], None]) -> Outcome:
    """`say` hears how it goes. Raises only for what keeps the run itself from happening."""
    began = time.monotonic()
    service = LocalService(folder, repository, **_SETTINGS)
    journal = Journal()
    try:
        say("starting the service")
        service.start()
        journal.began = time.monotonic()
        with receiving(journal) as receivers:
            key = (folder / "data" / "key").read_text().strip()
            clients = Clients(service.base_url, key, receivers, journal, Random(plan.seed))
            findings = asyncio.run(_during(plan, service, clients, say))
        say("stopping the service")
        service.stop()
        findings = [*findings, verdict.no_processes(service)]
    finally:
        service.close()
    return Outcome(plan, journal, findings, time.monotonic() - began)


async def _during(plan: Plan, service: LocalService, clients: Clients, say: Callable[[str], None]) -> Sequence[Finding]:
    journal = clients.journal
    async with connected(clients.base_url, clients.key) as http:
        await clients.canary(http)
        load = asyncio.create_task(clients.offer(http, plan.tasks, plan.seconds))
        breaking = asyncio.create_task(_break(plan, service, clients, say))
        await asyncio.gather(load, breaking)
        say(f"all is sent: {len(journal.accepted)} tasks accepted; waiting for quiet")
        url = (service.folder / "data" / "redis" / "url").read_text()
        store = Redis.from_url(url, decode_responses=True)
        try:
            await _quiet(store)
            return await verdict.judge(journal, store, http, service)
        finally:
            await store.aclose()


async def _break(plan: Plan, service: LocalService, clients: Clients, say: Callable[[str], None]) -> None:
    """One fault after the other; the next one waits until the service has recovered."""
    random, journal = Random(plan.seed + 1), clients.journal
    began = time.monotonic()
    await asyncio.sleep(_FIRST_FAULT_S)
    queue = random.sample(plan.faults, len(plan.faults))
    left = set(plan.faults)
    while left or time.monotonic() - began < plan.seconds - _LAST_FAULT_S:
        queue = queue or random.sample(plan.faults, len(plan.faults))
        name = queue.pop()
        left.discard(name)
        journal.fault = name
        recovered = await _suffer(name, service, clients)
        journal.faults.append(Suffered(name, time.monotonic() - began, recovered))
        told = "not recovered" if recovered is None else f"recovered after {recovered:.1f} s"
        say(f"{time.monotonic() - began:5.0f} s  {name}: {told}")
        await asyncio.sleep(random.uniform(*_PAUSE_S))
    journal.fault = "nothing"


async def _suffer(name: str, service: LocalService, clients: Clients) -> float | None:
    """Seconds until a task sent at the beginning of the fault was done with all that belongs to it."""
    began = time.monotonic()
    fault = asyncio.ensure_future(FAULTS[name](service))
    await asyncio.sleep(0.05)
    async with connected(clients.base_url, clients.key) as http:  # of its own: no broken connection is left to it
        try:
            async with asyncio.timeout(_RECOVERY_LIMIT_S):
                await clients.canary(http)
            return time.monotonic() - began
        except TimeoutError:
            return None
        finally:
            await fault


async def _quiet(store: Redis) -> None:
    """Until nothing waits and nothing is on its way, or it takes too long: then the verdict says what is left."""
    give_up = time.monotonic() + _QUIET_LIMIT_S
    while time.monotonic() < give_up:
        try:
            busy = [key async for key in store.scan_iter("gen:*") if key.startswith(("gen:deadlines:", "gen:outbox"))]
        except redis.RedisError:
            busy = ["?"]
        if not busy:
            return
        await asyncio.sleep(0.5)
