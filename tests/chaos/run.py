"""One run: start the service, offer load, break things, wait until all is over, check."""

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
from chaos.faults import FAULTS, connected_to_store, killed_worker
from chaos.load import DEAD, SIMULATED, Clients, Journal, ScriptedReceiver, canaries, connect, offers, receiving
from chaos.service import MODEL_NAME, NodesStage, On, Stage, open_stage
from chaos.verdict import Finding

_FIRST_FAULT_S, _LAST_FAULT_S = 3.0, 10.0
"""After the beginning of the load, and before its end."""
_RECOVERY_LIMIT_S: Final = {"one machine": 90.0, "a replicated Redis": 90.0, "nodes": 240.0}
"""On nodes: what a whole one takes to start, and all replicas that were on it."""
_QUIET_LIMIT_S: Final = 120.0
_OTHERS_LIMIT_S: Final = 60.0
"""How long, after all load and faults, other destinations' webhooks may take while one destination is dead."""
_BACKLOG_LIMIT_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    seconds: float
    tasks: int
    faults: tuple[str, ...]
    """Each happens once, in a random order, whatever time that takes; then again, as long as there is time."""
    on: On = "one machine"


@dataclass(frozen=True, slots=True)
class Outcome:
    plan: Plan
    journal: Journal
    findings: Sequence[Finding]

    @property
    def passed(self) -> bool:
        return all(finding.passed for finding in self.findings)


def order(seed: int, names: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Faults, each with the pause behind it, seconds. All happen once before one happens again."""
    random = Random(f"faults {seed}")
    while True:
        for name in random.sample(sorted(names), len(names)):
            yield name, random.uniform(1.0, 3.0)


def run(plan: Plan, folder: Path, repository: Path, say: Callable[[str], None]) -> Outcome:
    """`folder` is empty. `say` hears how it goes. Raises only for what keeps the run itself from happening."""
    journal = Journal()
    with open_stage(plan.on, folder, repository, plan.seconds) as stage:
        say("starting the service")
        stage.service.start()
        findings = asyncio.run(_during(plan, stage, journal, say))
        say("stopping the service")
        stage.service.stop()
        findings.append(verdict.no_processes(stage.service))
        if isinstance(stage, NodesStage):
            findings.append(verdict.check_other_application(stage.service))
    return Outcome(plan, journal, findings)


async def _during(plan: Plan, stage: Stage, journal: Journal, say: Callable[[str], None]) -> list[Finding]:
    async with receiving(journal) as destinations, connect(stage.service.base_url, stage.service.key) as http:
        clients = Clients(destinations, journal, canaries(plan.seed))
        await clients.canary(http)
        await asyncio.gather(
            clients.send(http, offers(plan.seed, plan.tasks, plan.seconds)), _break(plan, stage, clients, say)
        )
        say(f"all is sent: {len(journal.accepted)} tasks accepted; waiting for quiet")
        await _revive(destinations[DEAD], journal)
        async with connected_to_store(stage) as store:
            await _quiet(store)
            return await verdict.classify(journal, stage, store, http)


async def _break(plan: Plan, stage: Stage, clients: Clients, say: Callable[[str], None]) -> None:
    """One fault after the other; the next one waits until the service has recovered."""
    journal = clients.journal
    began = time.monotonic()
    await asyncio.sleep(_FIRST_FAULT_S)
    remaining = set(plan.faults)
    for name, pause_s in order(plan.seed, plan.faults):
        if not remaining and time.monotonic() - began >= plan.seconds - _LAST_FAULT_S:
            break
        remaining.discard(name)
        journal.fault = name
        recovered = await _suffer(name, plan.on, stage, clients)
        journal.faults.append((name, recovered))
        outcome = "not recovered" if recovered is None else f"recovered after {recovered:.1f} s"
        say(f"{time.monotonic() - began:5.0f} s  {name}: {outcome}")
        await asyncio.sleep(pause_s)
    journal.fault = "nothing"


async def _suffer(name: str, on: On, stage: Stage, clients: Clients) -> float | None:
    """Seconds until a task sent at the beginning of the fault was done with all that belongs to it."""
    began = time.monotonic()
    fault = asyncio.ensure_future(FAULTS[on][name](stage))
    await asyncio.sleep(0.05)
    # Of its own: no broken connection is left to it.
    async with connect(stage.service.base_url, stage.service.key) as http:
        try:
            async with asyncio.timeout(_RECOVERY_LIMIT_S[on]):
                await clients.canary(http)
            return time.monotonic() - began
        except TimeoutError:
            return None
        finally:
            await fault


async def _revive(destination: ScriptedReceiver, journal: Journal) -> None:
    """Has the dead destination back once all the others have theirs, or had time enough."""
    give_up = time.monotonic() + _OTHERS_LIMIT_S
    while (waiting := journal.list_undelivered(dead=False)) and time.monotonic() < give_up:
        await asyncio.sleep(0.2)
    journal.delayed = waiting
    journal.backlog = len(journal.list_undelivered(dead=True))
    destination.dead = False


async def _quiet(store: Redis) -> None:
    """Until nothing waits and nothing is on its way, or it takes too long: then the verdict says what is left."""
    give_up = time.monotonic() + _QUIET_LIMIT_S
    while time.monotonic() < give_up:
        with contextlib.suppress(redis.RedisError):
            keys = [key async for key in store.scan_iter("gen:*", count=10_000)]
            if not any(key.startswith(("gen:deadlines:", "gen:outbox")) for key in keys):
                return
        await asyncio.sleep(0.5)


def backlog(folder: Path, repository: Path, tasks: int, say: Callable[[str], None]) -> dict[str, Any]:
    """How much longer a backlog takes while every 30 s a node dies, and another one comes for it.

    The same tasks, of a simulated model that has two replicas, are all submitted at once; first with nothing else.
    """
    with open_stage("nodes", folder, repository, seconds=0) as stage:
        assert isinstance(stage, NodesStage)
        stage.service.start()
        calm_s, _, calm_unready = asyncio.run(_worked_off(stage, tasks, kill=False))
        say(f"backlog: {tasks} tasks in {calm_s:.0f} s")
        kills_s, kills, kills_unready = asyncio.run(_worked_off(stage, tasks, kill=True))
        say(f"backlog: {tasks} tasks in {kills_s:.0f} s, while {kills} nodes were killed")
        stage.service.stop()
    times = {"calm_s": round(calm_s, 1), "with_kills_s": round(kills_s, 1), "ratio": round(kills_s / calm_s, 3)}
    return {"tasks": tasks, "kills": kills, "not_ready": calm_unready + kills_unready, **times}


async def _worked_off(stage: NodesStage, tasks: int, *, kill: bool) -> tuple[float, int, int]:
    """Seconds by the store's clock, nodes that were killed meanwhile, and tasks that are not ready in the end."""
    async with connect(stage.service.base_url, stage.service.key) as http:
        turns = asyncio.Semaphore(16)
        ids = await asyncio.gather(*(_submit(http, turns, number) for number in range(tasks)))
    killed = 0
    async with connected_to_store(stage) as store, asyncio.timeout(_BACKLOG_LIMIT_S):
        while await store.zcard(f"gen:deadlines:{MODEL_NAME}"):
            if kill:
                killed += 1
                await asyncio.gather(killed_worker(stage), _empty(store, within_s=30))
            await asyncio.sleep(0.2)
        by_id = await verdict.records(store, stage.at_rest)
    results: list[Mapping[str, str]] = [by_id[each] for each in ids]
    took_ms = max(float(each["finished"]) for each in results) - min(float(each["created"]) for each in results)
    return took_ms / 1000, killed, sum(each["status"] != "Ready" for each in results)


async def _submit(http: httpx2.AsyncClient, turns: asyncio.Semaphore, seed: int) -> str:
    body = {"prompt": "a red star", "width": 256, "height": 256, "seed": seed, "steps": 16}
    headers = {"Idempotency-Key": str(uuid4())}
    async with turns, asyncio.timeout(_BACKLOG_LIMIT_S):
        while (answer := await http.post(f"/v1/{SIMULATED}", json=body, headers=headers)).status_code != 200:
            await asyncio.sleep(0.2)
    return answer.json()["id"]


async def _empty(store: Redis, within_s: float) -> None:
    over = time.monotonic() + within_s
    while time.monotonic() < over and await store.zcard(f"gen:deadlines:{MODEL_NAME}"):
        await asyncio.sleep(0.2)
