"""The faults: each one breaks something, waits for some seconds, and repairs it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import psutil
from redis.asyncio import Redis
from support.local_service import LocalService

from chaos.nodes import get_command
from chaos.testbed import MODEL_NAME, ClusterTestbed, ReplicatedTestbed, Testbed, Topology
from serve_app.storage import connection

Fault: TypeAlias = Callable[[Any], Awaitable[None]]
"""Takes the testbed of its topology."""

MODEL: Final = f"ServeReplica:gen:{MODEL_NAME}"
DISPATCHER: Final = "ServeReplica:gen:Dispatcher"
INGRESS: Final = "ServeReplica:gen:Ingress"
MODERATOR: Final = "ServeReplica:gen:Moderator"
SENDER: Final = "ServeReplica:gen:WebhookSender"
CONTROLLER: Final = "ServeController"
PROXY: Final = "haproxy"
REDIS: Final = "valkey-server"
DEPLOY: Final = "deploy changed settings, twice"
"""Clients see at most responses that ask to retry."""

_SKEW_S: Final = 300.0
_START_LIMIT_S: Final = 30.0
_NOTICE_S: Final = 30
"""Seconds between the notice of a preemption and the node's end. Clouds give 30 s to 120 s."""
_CHANGES: Final[tuple[dict[str, Any], ...]] = (
    {"service": {"max_body_mb": 280}, "dispatcher": {"headroom": 3}, "models": {MODEL_NAME: {"step_limit_s": 60}}},
    {"service": {"max_body_mb": 288}, "dispatcher": {"headroom": 4}, "models": {MODEL_NAME: {"step_limit_s": 120}}},
)
"""Settings whose change restarts replicas."""


def kill(name: str) -> Fault:
    async def fault(testbed: Testbed) -> None:
        _signal(testbed.service, name, signal.SIGKILL)

    return fault


async def kill_engine(testbed: Testbed) -> None:
    for process in testbed.service.processes("support/inference_server.py"):
        if "-c" not in process.cmdline():  # not its supervisor
            process.kill()


def freeze(name: str, seconds: float) -> Fault:
    """Stops a process for some seconds with SIGSTOP."""

    async def fault(testbed: Testbed) -> None:
        pids = _signal(testbed.service, name, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    return fault


async def slow_down_moderator(testbed: Testbed) -> None:
    """Lets the moderator run for a moment each second, so that each call takes a second."""
    for _ in range(7):
        await freeze(MODERATOR, 1)(testbed)
        await asyncio.sleep(0.1)


def skew_clock(name: str, seconds: float) -> Fault:
    """Makes the wall clock of a process jump by some seconds, and later jump back."""

    async def fault(testbed: Testbed) -> None:
        newest = max(testbed.service.processes(name), key=psutil.Process.create_time)  # the others are stopping
        clock = testbed.clocks / str(newest.pid)
        clock.with_suffix(".written").write_text(str(seconds))
        clock.with_suffix(".written").rename(clock)
        try:
            await _wait_until(clock.with_suffix(".read").exists)
            await asyncio.sleep(8)
        finally:
            clock.unlink()

    return fault


async def break_device(testbed: Testbed) -> None:
    """Breaks the device of one model replica until its process is replaced."""
    testbed.breaks.touch()
    try:
        await _wait_until(lambda: not testbed.breaks.exists())  # a replica took it
    finally:
        testbed.breaks.unlink(missing_ok=True)


async def cut_connections(testbed: Testbed) -> None:
    async with connected_to_store(testbed) as client:
        for _ in range(5):
            await client.client_kill_filter(_type="normal", skipme=True)
            await client.client_kill_filter(_type="pubsub", skipme=True)
            await asyncio.sleep(0.3)


async def fill_store(testbed: Testbed) -> None:
    """Leaves Redis no memory: submissions are rejected, running tasks still end."""
    async with connected_to_store(testbed) as client:
        used = int((await client.info("memory"))["used_memory"])
        await client.config_set("maxmemory", int(0.95 * used))  # ended tasks do not free enough
        try:
            await asyncio.sleep(5)
        finally:
            await client.config_set("maxmemory", 0)


async def fail_over(testbed: ReplicatedTestbed) -> None:
    """Kills the primary, waits for the failover, and restarts the old primary as a replica."""
    old_primary = await asyncio.to_thread(testbed.servers.kill_primary)
    await asyncio.to_thread(testbed.servers.await_failover, old_primary)
    await asyncio.sleep(2)
    await asyncio.to_thread(testbed.servers.return_as_replica, old_primary)


def degrade_object_server(seconds: float, *, delay_s: float = 0.0, dead: bool = False) -> Fault:
    async def fault(testbed: ReplicatedTestbed) -> None:
        testbed.object_server.delay_s, testbed.object_server.dead = delay_s, dead
        try:
            await asyncio.sleep(seconds)
        finally:
            testbed.object_server.delay_s, testbed.object_server.dead = 0.0, False

    return fault


async def fail_object_store(testbed: Testbed) -> None:
    """Replaces the folder of results by a file, so that all reads and writes fail."""
    folder, aside = testbed.objects, testbed.objects.with_name("objects-aside")
    folder.rename(aside)
    folder.write_bytes(b"")
    try:
        await asyncio.sleep(3)
    finally:
        folder.unlink()
        aside.rename(folder)


def redeploy(replicas: int) -> Fault:
    """Deploys the application again with other replica counts, as an upgrade does."""

    async def fault(testbed: Testbed) -> None:
        service = testbed.service
        # The controller's environment has Ray's flags, which the driver needs.
        environment = dict(service.processes(CONTROLLER)[0].environ())
        environment |= {"GEN_DISPATCHER__NUM_REPLICAS": str(replicas), "GEN_WEBHOOKS__NUM_REPLICAS": str(replicas)}
        parts = [part for process in service.processes("--gcs-address=") for part in process.cmdline()]
        address = next(part.partition("=")[2] for part in parts if part.startswith("--gcs-address="))
        command = [sys.executable, str(Path(__file__).with_name("redeploy.py")), str(service.config), address]
        result = await asyncio.to_thread(
            subprocess.run, command, env=environment, capture_output=True, text=True, timeout=90
        )
        if result.returncode != 0:
            raise RuntimeError(f"the redeploy failed:\n{result.stderr[-2000:]}")

    return fault


async def kill_worker(testbed: ClusterTestbed) -> None:
    """Kills the oldest worker node and adds one."""
    await asyncio.to_thread(testbed.service.nodes.replace, testbed.service.nodes.workers[0])


async def kill_workers(testbed: ClusterTestbed) -> None:
    for _ in range(3):
        await asyncio.gather(kill_worker(testbed), asyncio.sleep(30))


async def drain_worker(testbed: ClusterTestbed) -> None:
    """Drains a node as for maintenance, and kills it once it has no replicas."""
    nodes, node = testbed.service.nodes, testbed.service.nodes.workers[0]

    def replicas() -> list[psutil.Process]:
        return [each for each in node.processes() if "ServeReplica:gen:" in " ".join(get_command(each))]

    async with _record_crashes(testbed):
        await asyncio.to_thread(nodes.add)
        await asyncio.to_thread(nodes.drain, node)
        async with asyncio.timeout(240):
            while await asyncio.to_thread(replicas):
                await asyncio.sleep(0.2)
        await asyncio.to_thread(nodes.kill, node)


async def preempt_worker(testbed: ClusterTestbed) -> None:
    """Preempts a node as a cloud does: it is killed at the end of the notice, and another one is added."""
    nodes, node = testbed.service.nodes, testbed.service.nodes.workers[0]
    async with _record_crashes(testbed):
        notice = asyncio.create_task(asyncio.sleep(_NOTICE_S))
        await asyncio.to_thread(nodes.drain, node, _NOTICE_S)
        await asyncio.to_thread(nodes.add)
        await notice
        await asyncio.to_thread(nodes.kill, node)


async def kill_head(testbed: ClusterTestbed) -> None:
    """Kills the head node with GCS and Serve's controller and restarts it with Ray's stored state."""
    await asyncio.to_thread(testbed.service.nodes.head.kill)
    await asyncio.to_thread(testbed.service.nodes.restart_head)


async def kill_gcs(testbed: ClusterTestbed) -> None:
    """Kills GCS alone. `ray start --block` then ends its node, which is restarted."""
    head = testbed.service.nodes.head
    [gcs] = [each for each in await asyncio.to_thread(head.processes) if "gcs_server" in "".join(get_command(each)[:1])]
    gcs.send_signal(signal.SIGKILL)
    await asyncio.to_thread(head.await_end)
    await kill_head(testbed)


async def deploy_twice(testbed: ClusterTestbed) -> None:
    """Deploys other settings, then the old ones; each time most replicas restart."""
    for changes in _CHANGES:
        testbed.service.change(changes)
        await asyncio.to_thread(testbed.service.deploy)


FAULTS: Final[dict[Topology, dict[str, Fault]]] = {
    "one machine": {
        "kill a model replica": kill(MODEL),
        "kill an inference server": kill_engine,
        "kill a dispatcher": kill(DISPATCHER),
        "kill an ingress replica": kill(INGRESS),
        "kill the moderator": kill(MODERATOR),
        "kill the webhook sender": kill(SENDER),
        "kill the Redis server": kill(REDIS),
        "kill the HTTP proxy": kill(PROXY),
        "kill the Serve controller": kill(CONTROLLER),
        "freeze a model replica": freeze(MODEL, 9),
        "freeze a dispatcher": freeze(DISPATCHER, 9),
        "freeze an ingress replica": freeze(INGRESS, 8),
        "freeze the moderator": freeze(MODERATOR, 6),
        "freeze the webhook sender": freeze(SENDER, 6),
        "freeze the HTTP proxy": freeze(PROXY, 3),
        "freeze the Serve controller": freeze(CONTROLLER, 6),
        "freeze the Redis server": freeze(REDIS, 2),
        "stall the Redis server for longer than clients wait": freeze(REDIS, 7),
        "fill the Redis server": fill_store,
        "cut all Redis connections": cut_connections,
        "slow the moderator down": slow_down_moderator,
        "break a model's device": break_device,
        "clock of an ingress replica 5 minutes ahead": skew_clock(INGRESS, _SKEW_S),
        "clock of a dispatcher 5 minutes behind": skew_clock(DISPATCHER, -_SKEW_S),
        "object store fails": fail_object_store,
        "redeploy, scaled down": redeploy(1),
        "redeploy, scaled up": redeploy(2),
    },
    "a replicated Redis": {
        "fail over to a Redis replica": fail_over,
        "object server is slow": degrade_object_server(10, delay_s=2),
        "object server is dead": degrade_object_server(5, dead=True),  # longer than object store clients retry
    },
    "nodes": {
        "kill a worker node": kill_worker,
        "kill a worker node every 30 s": kill_workers,
        "drain a worker node": drain_worker,
        "take a worker node away after a notice": preempt_worker,
        "kill the head node": kill_head,
        "kill Ray's GCS": kill_gcs,
        DEPLOY: deploy_twice,
    },
}


@asynccontextmanager
async def connected_to_store(testbed: Testbed) -> AsyncIterator[Redis]:
    client = connection.connect(testbed.redis_url)
    try:
        yield client
    finally:
        await client.aclose()


async def _wait_until(started: Callable[[], bool]) -> None:
    """Returns once the fault has started; raises TimeoutError otherwise."""
    async with asyncio.timeout(_START_LIMIT_S):
        while not started():
            await asyncio.sleep(0.05)


def _signal(service: LocalService, name: str, number: signal.Signals) -> list[int]:
    """Sends a signal to one process of that name. Returns its pid, or nothing without such a process."""
    for process in service.processes(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
            return [process.pid]
    return []


@asynccontextmanager
async def _record_crashes(testbed: ClusterTestbed) -> AsyncIterator[None]:
    before = await _count_crashes(testbed)
    yield
    testbed.drained.append(await _count_crashes(testbed) - before)


async def _count_crashes(testbed: ClusterTestbed) -> int:
    """Returns the crashes of all tasks, once each current lease has ended or been renewed."""
    async with connected_to_store(testbed) as store:
        async for key in store.scan_iter("gen:leased:*", count=10_000):
            leases = cast(list[tuple[str, float]], await store.zrange(key, 0, -1, withscores=True))
            for task, until in leases:
                while await store.zscore(key, task) == until:
                    await asyncio.sleep(0.05)
        counts = [
            await cast(Awaitable[str | None], store.hget(key, "crashes"))
            async for key in store.scan_iter("gen:stats:*", count=10_000)
        ]
    return sum(int(count or 0) for count in counts)
