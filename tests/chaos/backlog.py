"""How much longer a backlog takes while every 30 s a node dies, and another one comes for it.

The same tasks, of a simulated model that has two replicas, are all submitted at once; first with nothing else, then
with nodes that die until all are done. Kills cost what was under way and what the other node can't do alone meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx2

from chaos.clients import connected
from chaos.cluster_faults import killed_worker
from chaos.evidence import gathered
from chaos.schedule import SIMULATED
from chaos.stage import MODEL_NAME, NodesStage, on_nodes
from serve_app.storage import connection

_STEPS: Final = 16
_EVERY_S: Final = 30.0
_AT_ONCE: Final = 16
"""Submissions on their way."""
_AGAIN_S: Final = 0.2
_LIMIT_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Backlog:
    tasks: int
    calm_s: float
    """From the first submission to the end of the last task, by the store's clock."""
    with_kills_s: float
    kills: int
    not_ready: int
    """Tasks that ended otherwise, or did not end."""

    @property
    def ratio(self) -> float:
        return self.with_kills_s / self.calm_s

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": round(self.ratio, 3)}


def measure(folder: Path, repository: Path, tasks: int, say: Callable[[str], None]) -> Backlog:
    """`folder` is empty. Starts nodes and the service on them."""
    with on_nodes(folder, repository, seconds=0) as stage:
        say("backlog: starting the service")
        stage.service.start()
        calm = asyncio.run(_drained(stage, tasks, kill=False))
        say(f"backlog: {tasks} tasks in {calm[0]:.0f} s")
        killing = asyncio.run(_drained(stage, tasks, kill=True))
        say(f"backlog: {tasks} tasks in {killing[0]:.0f} s, while {killing[1]} nodes were killed")
        stage.service.stop()
    return Backlog(tasks, round(calm[0], 1), round(killing[0], 1), killing[1], calm[2] + killing[2])


async def _drained(stage: NodesStage, tasks: int, *, kill: bool) -> tuple[float, int, int]:
    """Seconds, nodes that were killed meanwhile, and tasks that are not ready in the end."""
    key = (stage.service.folder / "data" / "key").read_text().strip()
    async with connected(stage.service.base_url, key) as http:
        turns = asyncio.Semaphore(_AT_ONCE)
        ids = await asyncio.gather(*(_submitted(http, turns, number) for number in range(tasks)))
    kills = asyncio.create_task(_kill_again_and_again(stage)) if kill else None
    try:
        records = await _ended(stage, ids)
    finally:
        killed = await _stopped(kills)
    began = min(float(record["created"]) for record in records)
    finished = max(float(record["finished"]) for record in records)
    return (finished - began) / 1000, killed, sum(record["status"] != "Ready" for record in records)


async def _submitted(http: httpx2.AsyncClient, turns: asyncio.Semaphore, seed: int) -> str:
    body = {"prompt": "a red star", "width": 256, "height": 256, "seed": seed, "steps": _STEPS}
    headers = {"Idempotency-Key": str(uuid4())}
    async with turns, asyncio.timeout(_LIMIT_S):
        while (answer := await http.post(f"/v1/{SIMULATED}", json=body, headers=headers)).status_code != 200:
            await asyncio.sleep(_AGAIN_S)
    return answer.json()["id"]


async def _kill_again_and_again(stage: NodesStage) -> int:
    """Until it is cancelled; what was killed last is replaced all the same. Returns how many were."""
    killed = 0
    while True:
        began = time.monotonic()
        replacing = asyncio.create_task(killed_worker(stage))
        killed += 1
        try:
            await asyncio.shield(replacing)
            await asyncio.sleep(max(0.0, began + _EVERY_S - time.monotonic()))
        except asyncio.CancelledError:
            await replacing
            return killed


async def _stopped(kills: asyncio.Task[int] | None) -> int:
    if kills is None:
        return 0
    kills.cancel()
    return await kills


async def _ended(stage: NodesStage, ids: list[str]) -> list[Mapping[str, str]]:
    store = connection.connect(stage.redis_url)
    try:
        async with asyncio.timeout(_LIMIT_S):
            while await store.zcard(f"gen:deadlines:{MODEL_NAME}"):
                await asyncio.sleep(_AGAIN_S)
        found = (await gathered(store, stage.at_rest)).tasks
        return [found[each] for each in ids]
    finally:
        await store.aclose()
