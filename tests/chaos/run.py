"""One chaos run: starts the service, sends load, injects faults, waits until all tasks have ended, and checks."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import uuid4

import httpx2
import redis
from redis.asyncio import Redis

from chaos import verdict
from chaos.faults import FAULTS, connected_to_store, kill_worker
from chaos.load import (
    DEAD,
    SIMULATED,
    Clients,
    Journal,
    ScriptedReceiver,
    canaries,
    connect,
    receiving,
    schedule_requests,
)
from chaos.testbed import MODEL_NAME, ClusterTestbed, Testbed, Topology, open_testbed
from chaos.verdict import PromiseResult

_FIRST_FAULT_S, _LAST_FAULT_S = 3.0, 10.0
"""Seconds after the start of the load, and before its end."""
_RECOVERY_LIMIT_S: Final = {"one machine": 90.0, "a replicated Redis": 90.0, "nodes": 240.0}
"""Maximum recovery time. Recovery on nodes includes the start of a node and its replicas."""
_IDLE_LIMIT_S: Final = 120.0
_OTHERS_LIMIT_S: Final = 60.0
"""Maximum delay of other destinations' webhooks after the load, while one destination is dead."""
_BACKLOG_LIMIT_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    seed: int
    seconds: float
    tasks: int
    faults: tuple[str, ...]
    """Faults: each happens once in a random order, then again until the end of the load."""
    topology: Topology = "one machine"


@dataclass(frozen=True, slots=True)
class ChaosOutcome:
    plan: ChaosPlan
    journal: Journal
    results: Sequence[PromiseResult]

    @property
    def passed(self) -> bool:
        return all(result.passed for result in self.results)


def shuffle_faults(seed: int, names: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yields faults, each with the pause after it in seconds. All happen once before one happens again."""
    random = Random(f"faults {seed}")
    while True:
        for name in random.sample(sorted(names), len(names)):
            yield name, random.uniform(1.0, 3.0)


def run(plan: ChaosPlan, folder: Path, repository: Path, log: Callable[[str], None]) -> ChaosOutcome:
    """Runs a plan in an empty folder. `log` gets lines of progress. Broken promises do not raise."""
    journal = Journal()
    with open_testbed(plan.topology, folder, repository, plan.seconds) as testbed:
        log("starting the service")
        testbed.service.start()
        results = asyncio.run(_load_and_break(plan, testbed, journal, log))
        log("stopping the service")
        testbed.service.stop()
        results.append(verdict.check_no_processes(testbed.service))
        if isinstance(testbed, ClusterTestbed):
            results.append(verdict.check_other_application(testbed.service))
    return ChaosOutcome(plan, journal, results)


async def _load_and_break(
    plan: ChaosPlan, testbed: Testbed, journal: Journal, log: Callable[[str], None]
) -> list[PromiseResult]:
    async with receiving(journal) as destinations, connect(testbed.service.base_url, testbed.service.key) as http:
        clients = Clients(destinations, journal, canaries(plan.seed))
        await clients.run_canary(http)
        requests = schedule_requests(plan.seed, plan.tasks, plan.seconds)
        await asyncio.gather(clients.send(http, requests), _inject_faults(plan, testbed, clients, log))
        log(f"{len(journal.accepted)} tasks accepted; waiting for their end")
        await _revive_destination(destinations[DEAD], journal)
        async with connected_to_store(testbed) as store:
            await _wait_until_idle(store)
            return await verdict.check_promises(journal, testbed, store, http)


async def _inject_faults(plan: ChaosPlan, testbed: Testbed, clients: Clients, log: Callable[[str], None]) -> None:
    """Injects one fault after the other, each after the service's recovery."""
    journal = clients.journal
    start = time.monotonic()
    await asyncio.sleep(_FIRST_FAULT_S)
    remaining = set(plan.faults)
    for name, pause_s in shuffle_faults(plan.seed, plan.faults):
        if not remaining and time.monotonic() - start >= plan.seconds - _LAST_FAULT_S:
            break
        remaining.discard(name)
        journal.fault = name
        recovered = await _inject_fault(name, plan.topology, testbed, clients)
        journal.faults.append((name, recovered))
        outcome = "not recovered" if recovered is None else f"recovered after {recovered:.1f} s"
        log(f"{time.monotonic() - start:5.0f} s  {name}: {outcome}")
        await asyncio.sleep(pause_s)
    journal.fault = "nothing"


async def _inject_fault(name: str, topology: Topology, testbed: Testbed, clients: Clients) -> float | None:
    """Returns the seconds until a task sent at the fault's start is ready and delivered; None if it never is."""
    start = time.monotonic()
    fault = asyncio.ensure_future(FAULTS[topology][name](testbed))
    await asyncio.sleep(0.05)
    # A new client without broken connections.
    async with connect(testbed.service.base_url, testbed.service.key) as http:
        try:
            async with asyncio.timeout(_RECOVERY_LIMIT_S[topology]):
                await clients.run_canary(http)
            return time.monotonic() - start
        except TimeoutError:
            return None
        finally:
            await fault


async def _revive_destination(destination: ScriptedReceiver, journal: Journal) -> None:
    """Revives the dead destination once the others have their webhooks, or after a limit."""
    deadline = time.monotonic() + _OTHERS_LIMIT_S
    while (waiting := journal.list_undelivered(dead=False)) and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    journal.delayed = waiting
    journal.backlog = len(journal.list_undelivered(dead=True))
    destination.dead = False


async def _wait_until_idle(store: Redis) -> None:
    """Returns once no task or webhook is unfinished, or after a limit; the verdict then lists the leftovers."""
    deadline = time.monotonic() + _IDLE_LIMIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(redis.RedisError):
            keys = [key async for key in store.scan_iter("gen:*", count=10_000)]
            if not any(key.startswith(("gen:deadlines:", "gen:outbox")) for key in keys):
                return
        await asyncio.sleep(0.5)


def measure_backlog(folder: Path, repository: Path, tasks: int, log: Callable[[str], None]) -> dict[str, Any]:
    """Measures how much longer a backlog takes while a node is killed and replaced every 30 s.

    The tasks of a simulated model with two replicas are all submitted at once, first without kills.
    """
    with open_testbed("nodes", folder, repository, seconds=0) as testbed:
        assert isinstance(testbed, ClusterTestbed)
        testbed.service.start()
        calm_s, _, calm_unready = asyncio.run(_process_backlog(testbed, tasks, kill=False))
        log(f"backlog: {tasks} tasks in {calm_s:.0f} s")
        kills_s, kills, kills_unready = asyncio.run(_process_backlog(testbed, tasks, kill=True))
        log(f"backlog: {tasks} tasks in {kills_s:.0f} s, while {kills} nodes were killed")
        testbed.service.stop()
    times = {"calm_s": round(calm_s, 1), "with_kills_s": round(kills_s, 1), "ratio": round(kills_s / calm_s, 3)}
    return {"tasks": tasks, "kills": kills, "not_ready": calm_unready + kills_unready, **times}


async def _process_backlog(testbed: ClusterTestbed, tasks: int, *, kill: bool) -> tuple[float, int, int]:
    """Returns seconds by the store's clock, the number of killed nodes, and the number of tasks that are not ready."""
    async with connect(testbed.service.base_url, testbed.service.key) as http:
        limit = asyncio.Semaphore(16)
        ids = await asyncio.gather(*(_submit(http, limit, number) for number in range(tasks)))
    killed = 0
    async with connected_to_store(testbed) as store, asyncio.timeout(_BACKLOG_LIMIT_S):
        while await store.zcard(f"gen:deadlines:{MODEL_NAME}"):
            if kill:
                killed += 1
                await asyncio.gather(kill_worker(testbed), _wait_for_empty_queue(store, within_s=30))
            await asyncio.sleep(0.2)
        by_id = await verdict.read_records(store, testbed.at_rest)
    results: list[Mapping[str, str]] = [by_id[each] for each in ids]
    took_ms = max(float(each["finished"]) for each in results) - min(float(each["created"]) for each in results)
    return took_ms / 1000, killed, sum(each["status"] != "Ready" for each in results)


async def _submit(http: httpx2.AsyncClient, limit: asyncio.Semaphore, seed: int) -> str:
    body = {"prompt": "a red star", "width": 256, "height": 256, "seed": seed, "steps": 16}
    headers = {"Idempotency-Key": str(uuid4())}
    async with limit, asyncio.timeout(_BACKLOG_LIMIT_S):
        while (answer := await http.post(f"/v1/{SIMULATED}", json=body, headers=headers)).status_code != 200:
            await asyncio.sleep(0.2)
    return answer.json()["id"]


async def _wait_for_empty_queue(store: Redis, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and await store.zcard(f"gen:deadlines:{MODEL_NAME}"):
        await asyncio.sleep(0.2)
