"""One run: start the service, offer load, break things, wait until all is over, judge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import redis
from redis.asyncio import Redis

from chaos import harm, nodes_verdict, schedule, verdict
from chaos.clients import Clients, connected
from chaos.cluster_faults import NODE_FAULTS
from chaos.evidence import gathered
from chaos.faults import FAULTS, REPLICATED_FAULTS
from chaos.harm import Harm
from chaos.journal import Journal, Suffered
from chaos.receivers import DEAD, Receiver, receiving
from chaos.stage import NodesStage, ReplicatedStage, Stage, on_nodes, replicated, standalone
from chaos.verdict import Finding
from serve_app.storage import connection

On: TypeAlias = Literal["one machine", "a replicated Redis", "nodes"]

_STAGES: Final = {"one machine": standalone, "a replicated Redis": replicated, "nodes": on_nodes}
_FIRST_FAULT_S, _LAST_FAULT_S = 3.0, 10.0
"""After the beginning of the load, and before its end."""
_RECOVERY_LIMIT_S: Final = 90.0
_NODES_RECOVERY_LIMIT_S: Final = 240.0
"""What a whole node takes to start, and all replicas that were on it."""
_QUIET_LIMIT_S: Final = 120.0
_OTHERS_LIMIT_S: Final = 60.0
"""How long, after all load and faults, other receivers' webhooks may take while one receiver is dead."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`faults` are of FAULTS, REPLICATED_FAULTS or NODE_FAULTS, by what the service stands on."""

    seed: int
    seconds: float = 360.0
    tasks: int = 1440
    faults: tuple[str, ...] = tuple(FAULTS)
    """Each happens once, in a random order, whatever time that takes; then again, as long as there is time."""
    on: On = "one machine"


@dataclass(frozen=True, slots=True)
class Outcome:
    plan: Plan
    journal: Journal
    findings: Sequence[Finding]
    harm: Mapping[str, Harm]
    """By fault."""
    took_s: float

    @property
    def kept(self) -> bool:
        return all(finding.kept for finding in self.findings)


def run(plan: Plan, folder: Path, repository: Path, say: Callable[[str], None]) -> Outcome:
    """`folder` is empty. `say` hears how it goes. Raises only for what keeps the run itself from happening."""
    began = time.monotonic()
    journal = Journal()
    with _STAGES[plan.on](folder, repository, plan.seconds) as stage:
        say("starting the service")
        stage.service.start()
        journal.began = time.monotonic()
        with receiving(journal) as receivers:
            key = (stage.service.folder / "data" / "key").read_text().strip()
            clients = Clients(stage.service.base_url, key, receivers, journal, schedule.canaries(plan.seed))
            findings, harmed = asyncio.run(_during(plan, stage, clients, say))
        say("stopping the service")
        stage.service.stop()
        findings = [*findings, verdict.no_processes(stage.service)]
        if isinstance(stage, NodesStage):
            findings.append(nodes_verdict.undisturbed(stage.service.neighbour))
    return Outcome(plan, journal, findings, harmed, time.monotonic() - began)


async def _during(
    plan: Plan, stage: Stage, clients: Clients, say: Callable[[str], None]
) -> tuple[Sequence[Finding], Mapping[str, Harm]]:
    journal = clients.journal
    async with connected(clients.base_url, clients.key) as http:
        await clients.canary(http)
        load = asyncio.create_task(clients.send(http, schedule.offers(plan.seed, plan.tasks, plan.seconds)))
        breaking = asyncio.create_task(_break(plan, stage, clients, say))
        await asyncio.gather(load, breaking)
        say(f"all is sent: {len(journal.accepted)} tasks accepted; waiting for quiet")
        await _revive(clients.receivers[DEAD], journal)
        store = connection.connect(stage.redis_url)
        try:
            await _quiet(store)
            evidence = await gathered(store, stage.at_rest)
            findings = await verdict.judge(journal, evidence, store, http, stage.objects)
            if isinstance(stage, NodesStage):
                findings += await nodes_verdict.judge(journal, evidence, stage)
            return findings, harm.by_fault(journal, evidence)
        finally:
            await store.aclose()


async def _break(plan: Plan, stage: Stage, clients: Clients, say: Callable[[str], None]) -> None:
    """One fault after the other; the next one waits until the service has recovered."""
    journal = clients.journal
    began = time.monotonic()
    await asyncio.sleep(_FIRST_FAULT_S)
    left = set(plan.faults)
    for name, pause_s in schedule.faults(plan.seed, plan.faults):
        if not left and time.monotonic() - began >= plan.seconds - _LAST_FAULT_S:
            break
        left.discard(name)
        journal.fault = name
        at = time.time()
        recovered = await _suffer(name, stage, clients)
        journal.faults.append(Suffered(name, at, recovered))
        told = "not recovered" if recovered is None else f"recovered after {recovered:.1f} s"
        say(f"{time.monotonic() - began:5.0f} s  {name}: {told}")
        await asyncio.sleep(pause_s)
    journal.fault = "nothing"


async def _suffer(name: str, stage: Stage, clients: Clients) -> float | None:
    """Seconds until a task sent at the beginning of the fault was done with all that belongs to it."""
    began = time.monotonic()
    fault = asyncio.create_task(_fault(name, stage))
    await asyncio.sleep(0.05)
    async with connected(clients.base_url, clients.key) as http:  # of its own: no broken connection is left to it
        try:
            async with asyncio.timeout(_NODES_RECOVERY_LIMIT_S if isinstance(stage, NodesStage) else _RECOVERY_LIMIT_S):
                await clients.canary(http)
            return time.monotonic() - began
        except TimeoutError:
            return None
        finally:
            await fault


async def _fault(name: str, stage: Stage) -> None:
    if isinstance(stage, ReplicatedStage):
        await REPLICATED_FAULTS[name](stage)
    elif isinstance(stage, NodesStage):
        await NODE_FAULTS[name](stage)
    else:
        await FAULTS[name](stage)


async def _revive(receiver: Receiver, journal: Journal) -> None:
    """Has the dead receiver back once all the others have theirs, or had time enough."""
    give_up = time.monotonic() + _OTHERS_LIMIT_S
    while (waiting := _undelivered(journal, dead=False)) and time.monotonic() < give_up:
        await asyncio.sleep(0.2)
    journal.delayed = waiting
    journal.backlog = len(_undelivered(journal, dead=True))
    receiver.revive()


def _undelivered(journal: Journal, *, dead: bool) -> list[str]:
    hooked = (seen for seen in journal.accepted.values() if seen.hook and (seen.hook == DEAD) == dead)
    return [seen.id for seen in hooked if seen.id not in journal.delivered]


async def _quiet(store: Redis) -> None:
    """Until nothing waits and nothing is on its way, or it takes too long: then the verdict says what is left."""
    give_up = time.monotonic() + _QUIET_LIMIT_S
    while time.monotonic() < give_up:
        try:
            keys = [key async for key in store.scan_iter("gen:*", count=10_000)]
            busy = [key for key in keys if key.startswith(("gen:deadlines:", "gen:outbox"))]
        except redis.RedisError:
            busy = ["?"]
        if not busy:
            return
        await asyncio.sleep(0.5)
