"""What is done to a service on several nodes: they die, go in order and come; what is deployed there changes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, cast

import psutil
from redis.asyncio import Redis
from support.ray_nodes import Node, command_of

from chaos.cluster_service import WORKER, ClusterService
from chaos.faults import connected_to_store
from chaos.journal import DEPLOYED
from chaos.stage import MODEL_NAME, NodesStage

NodeFault: TypeAlias = Callable[[NodesStage], Awaitable[None]]

_REPLICA: Final = "ServeReplica:gen:"
_GCS: Final = "gcs_server"
_NOTICE_S: Final = 30
"""Between the notice that a machine is taken away and its end. Clouds give 30 s to 120 s."""
_EMPTY_WITHIN_S: Final = 240.0
_EVERY_S: Final = 30.0
_CHANGES: Final[tuple[dict[str, Any], ...]] = (
    {"service": {"max_body_mb": 280}, "dispatcher": {"headroom": 3}, "models": {MODEL_NAME: {"step_limit_s": 60}}},
    {"service": {"max_body_mb": 288}, "dispatcher": {"headroom": 4}, "models": {MODEL_NAME: {"step_limit_s": 120}}},
)
"""All of them restart replicas."""


async def killed_worker(stage: NodesStage) -> None:
    """The oldest, and another one comes."""
    await asyncio.to_thread(stage.service.replace, stage.service.nodes.workers[0])


async def killed_workers(stage: NodesStage) -> None:
    for _ in range(3):
        began = asyncio.get_running_loop().time()
        await killed_worker(stage)
        await asyncio.sleep(max(0.0, began + _EVERY_S - asyncio.get_running_loop().time()))


async def drained(stage: NodesStage) -> None:
    """As for maintenance: the node goes once nothing of the service is on it, however long that takes."""
    node = stage.service.nodes.workers[0]
    before = await _settled_strikes(stage)
    await asyncio.to_thread(stage.service.nodes.add, WORKER)
    await asyncio.to_thread(stage.service.nodes.drain, node)
    async with asyncio.timeout(_EMPTY_WITHIN_S):
        while await asyncio.to_thread(_replicas, node):
            await asyncio.sleep(0.2)
    await asyncio.to_thread(stage.service.nodes.kill, node)
    stage.drained.append(await _settled_strikes(stage) - before)


async def preempted(stage: NodesStage) -> None:
    """As by a notice of a cloud: at its end the node is gone, whatever is on it, and another one comes meanwhile."""
    node = stage.service.nodes.workers[0]
    before = await _settled_strikes(stage)
    ends = asyncio.get_running_loop().time() + _NOTICE_S
    await asyncio.to_thread(stage.service.nodes.drain, node, _NOTICE_S)
    await asyncio.to_thread(stage.service.nodes.add, WORKER)
    await asyncio.sleep(max(0.0, ends - asyncio.get_running_loop().time()))
    await asyncio.to_thread(stage.service.nodes.kill, node)
    stage.drained.append(await _settled_strikes(stage) - before)


async def killed_head(stage: NodesStage) -> None:
    """With GCS, Serve's controller and whatever else was there; it is started again, and finds all that Ray knew."""
    await asyncio.to_thread(stage.service.nodes.head.kill)
    await asyncio.to_thread(stage.service.nodes.restart_head)


async def killed_gcs(stage: NodesStage) -> None:
    """Alone. `ray start --block` ends all of its node then, and is started again."""
    head = stage.service.nodes.head
    [gcs] = [each for each in await asyncio.to_thread(head.processes) if _GCS in "".join(command_of(each)[:1])]
    gcs.send_signal(signal.SIGKILL)
    await asyncio.to_thread(head.await_end)
    await killed_head(stage)


async def deployed_twice(stage: NodesStage) -> None:
    """Other settings, then the first ones again: each time most replicas are restarted."""
    for changes in _CHANGES:
        stage.service.change(changes)
        await asyncio.to_thread(_deploy, stage.service)


NODE_FAULTS: Final[dict[str, NodeFault]] = {
    "kill a worker node": killed_worker,
    "kill a worker node every 30 s": killed_workers,
    "drain a worker node": drained,
    "take a worker node away after a notice": preempted,
    "kill the head node": killed_head,
    "kill Ray's GCS": killed_gcs,
    DEPLOYED: deployed_twice,
}


def _deploy(service: ClusterService) -> None:
    service.await_neighbour()
    with service.neighbour.watched("deploy again"):
        service.deploy()


def _replicas(node: Node) -> list[psutil.Process]:
    return [process for process in node.processes() if _REPLICA in " ".join(command_of(process))]


async def _settled_strikes(stage: NodesStage) -> int:
    """That were ever counted, once those of leases that nobody prolongs any more are among them."""
    async with connected_to_store(stage) as store:
        await _renewed(store)
        counts = [
            await cast(Awaitable[str | None], store.hget(key, "strikes"))
            async for key in store.scan_iter("gen:stats:*", count=10_000)
        ]
    return sum(int(count or 0) for count in counts)


async def _renewed(store: Redis) -> None:
    """Until each lease that is held now has ended, or been prolonged."""
    held = {
        key: cast(list[tuple[str, float]], await store.zrange(key, 0, -1, withscores=True))
        async for key in store.scan_iter("gen:leased:*", count=10_000)
    }
    for key, leases in held.items():
        for task, until in leases:
            while await store.zscore(key, task) == until:
                await asyncio.sleep(0.05)
