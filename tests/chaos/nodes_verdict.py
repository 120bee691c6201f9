"""What a service on several nodes promises besides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from support.neighbour import Neighbour

from chaos.evidence import Evidence
from chaos.journal import DEPLOYED, Journal
from chaos.stage import ON_DEMAND, NodesStage
from chaos.verdict import Finding

_SHOWN: Final = 5
_GONE_WITHIN_S: Final = 120.0


async def judge(journal: Journal, evidence: Evidence, stage: NodesStage) -> list[Finding]:
    return [
        _drains_cost_nothing(stage.drained),
        _deployments_refuse_clearly(journal),
        await _nobody_is_kept_waiting_for_work(evidence, stage),
    ]


def undisturbed(neighbour: Neighbour) -> Finding:
    told = f"{neighbour.asked} requests while ours was deployed, changed and removed, {len(neighbour.failed)} failed"
    return Finding("another application answers", told, tuple(neighbour.failed[:_SHOWN]))


def _drains_cost_nothing(strikes: Sequence[int]) -> Finding:
    struck = [f"drain {number}: {count} strikes" for number, count in enumerate(strikes, start=1) if count]
    return Finding("work on a drained node costs no strike", f"{len(strikes)} drains", tuple(struck[:_SHOWN]))


def _deployments_refuse_clearly(journal: Journal) -> Finding:
    unclear = [trouble.what for trouble in journal.unclear if trouble.during == DEPLOYED]
    told = f"{len(unclear)} answers of 5xx that did not say"
    return Finding("what a deployment refuses is told when to come again", told, tuple(unclear[:_SHOWN]))


async def _nobody_is_kept_waiting_for_work(evidence: Evidence, stage: NodesStage) -> Finding:
    """The lane that has no replicas while there is nothing to do did its tasks, and has none again."""
    done = [row["status"] == "Ready" for row in evidence.tasks.values() if row["lane"] == ON_DEMAND]
    give_up = time.monotonic() + _GONE_WITHIN_S
    while (left := await asyncio.to_thread(_replicas, stage)) and time.monotonic() < give_up:
        await asyncio.sleep(0.5)
    wrong = [f"{left} replicas are left"] if left else []
    wrong += ["none of its tasks was done"] if done and not any(done) else []
    return Finding("a lane comes from zero and goes back", f"{sum(done)} of {len(done)} tasks done", tuple(wrong))


def _replicas(stage: NodesStage) -> int:
    return len(stage.service.processes(f"ServeReplica:gen:{ON_DEMAND}"))
