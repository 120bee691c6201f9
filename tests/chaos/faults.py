"""What is done to the service: each fault happens, lasts for some seconds where it can last, and is over."""

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
from chaos.service import MODEL_NAME, NodesStage, On, ReplicatedStage, Stage
from serve_app.storage import connection

Fault: TypeAlias = Callable[[Any], Awaitable[None]]
"""Takes the stage that it is for."""

MODEL: Final = f"ServeReplica:gen:{MODEL_NAME}"
DISPATCHER: Final = "ServeReplica:gen:Dispatcher"
INGRESS: Final = "ServeReplica:gen:Ingress"
MODERATOR: Final = "ServeReplica:gen:Moderator"
SENDER: Final = "ServeReplica:gen:WebhookSender"
CONTROLLER: Final = "ServeController"
PROXY: Final = "haproxy"
REDIS: Final = "valkey-server"
DEPLOYED: Final = "deploy changed settings, twice"
"""Which clients may only notice as reasons to come again."""

_SKEW_S: Final = 300.0
_BEGINS_WITHIN_S: Final = 30.0
_NOTICE_S: Final = 30
"""Between the notice that a machine is taken away and its end. Clouds give 30 s to 120 s."""
_CHANGES: Final[tuple[dict[str, Any], ...]] = (
    {"service": {"max_body_mb": 280}, "dispatcher": {"headroom": 3}, "models": {MODEL_NAME: {"step_limit_s": 60}}},
    {"service": {"max_body_mb": 288}, "dispatcher": {"headroom": 4}, "models": {MODEL_NAME: {"step_limit_s": 120}}},
)
"""All of them restart replicas."""


def killing(name: str) -> Fault:
    async def fault(stage: Stage) -> None:
        _signal(stage.service, name, signal.SIGKILL)

    return fault


async def killing_the_engine(stage: Stage) -> None:
    for process in stage.service.processes("support/inference_server.py"):
        if "-c" not in process.cmdline():  # as its supervisor's
            process.kill()


def freezing(name: str, seconds: float) -> Fault:
    """Its process stops in the middle of whatever it does, and goes on later as if nothing had been."""

    async def fault(stage: Stage) -> None:
        pids = _signal(stage.service, name, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    return fault


async def slow_moderator(stage: Stage) -> None:
    """Its process only runs for a moment now and then: whatever it is asked for takes a second."""
    for _ in range(7):
        await freezing(MODERATOR, 1)(stage)
        await asyncio.sleep(0.1)


def skewing(name: str, seconds: float) -> Fault:
    """The wall clock of its process jumps by so many seconds, and later jumps back."""

    async def fault(stage: Stage) -> None:
        newest = max(stage.service.processes(name), key=psutil.Process.create_time)  # not one that is on its way out
        clock = stage.clocks / str(newest.pid)
        clock.with_suffix(".written").write_text(str(seconds))
        clock.with_suffix(".written").rename(clock)
        try:
            await _until(clock.with_suffix(".heard").exists)
            await asyncio.sleep(8)
        finally:
            clock.unlink()

    return fault


async def broken_device(stage: Stage) -> None:
    """One replica of the model can do nothing any more, until its process is replaced."""
    stage.breaks.touch()
    try:
        await _until(lambda: not stage.breaks.exists())  # a replica took it
    finally:
        stage.breaks.unlink(missing_ok=True)


async def cut_connections(stage: Stage) -> None:
    async with connected_to_store(stage) as client:
        for _ in range(5):
            await client.client_kill_filter(_type="normal", skipme=True)
            await client.client_kill_filter(_type="pubsub", skipme=True)
            await asyncio.sleep(0.3)


async def full_store(stage: Stage) -> None:
    """Redis has no memory left: what would begin is refused, what runs comes to its end."""
    async with connected_to_store(stage) as client:
        used = int((await client.info("memory"))["used_memory"])
        await client.config_set("maxmemory", int(0.95 * used))  # what ends meanwhile makes no room for what begins
        try:
            await asyncio.sleep(5)
        finally:
            await client.config_set("maxmemory", 0)


async def failover(stage: ReplicatedStage) -> None:
    """The primary is killed, its replica takes over, and the one that was killed is back as a replica."""
    old_primary = await asyncio.to_thread(stage.servers.kill_primary)
    await asyncio.to_thread(stage.servers.await_failover, old_primary)
    await asyncio.sleep(2)
    await asyncio.to_thread(stage.servers.return_as_replica, old_primary)


def bad_object_server(seconds: float, *, delay_s: float = 0.0, dead: bool = False) -> Fault:
    async def fault(stage: ReplicatedStage) -> None:
        stage.object_server.delay_s, stage.object_server.dead = delay_s, dead
        try:
            await asyncio.sleep(seconds)
        finally:
            stage.object_server.delay_s, stage.object_server.dead = 0.0, False

    return fault


async def failing_objects(stage: Stage) -> None:
    """Nothing can be stored or read: where the folder of results was, there is a file."""
    folder, aside = stage.objects, stage.objects.with_name("objects-aside")
    folder.rename(aside)
    folder.write_bytes(b"")
    try:
        await asyncio.sleep(3)
    finally:
        folder.unlink()
        aside.rename(folder)


def redeploy(replicas: int) -> Fault:
    """The application is deployed again with other replica counts, as an upgrade does it."""

    async def fault(stage: Stage) -> None:
        service = stage.service
        # That of the controller, so that a driver beside it has Ray's switches.
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


async def killed_worker(stage: NodesStage) -> None:
    """The oldest, and another one comes."""
    await asyncio.to_thread(stage.service.nodes.replace, stage.service.nodes.workers[0])


async def killed_workers(stage: NodesStage) -> None:
    for _ in range(3):
        await asyncio.gather(killed_worker(stage), asyncio.sleep(30))


async def drain(stage: NodesStage) -> None:
    """As for maintenance: the node goes once nothing of the service is on it, however long that takes."""
    nodes, node = stage.service.nodes, stage.service.nodes.workers[0]

    def replicas() -> list[psutil.Process]:
        return [each for each in node.processes() if "ServeReplica:gen:" in " ".join(get_command(each))]

    async with _crashes_counted(stage):
        await asyncio.to_thread(nodes.add)
        await asyncio.to_thread(nodes.drain, node)
        async with asyncio.timeout(240):
            while await asyncio.to_thread(replicas):
                await asyncio.sleep(0.2)
        await asyncio.to_thread(nodes.kill, node)


async def preempt(stage: NodesStage) -> None:
    """As by a notice of a cloud: at its end the node is gone, whatever is on it, and another one comes meanwhile."""
    nodes, node = stage.service.nodes, stage.service.nodes.workers[0]
    async with _crashes_counted(stage):
        notice = asyncio.create_task(asyncio.sleep(_NOTICE_S))
        await asyncio.to_thread(nodes.drain, node, _NOTICE_S)
        await asyncio.to_thread(nodes.add)
        await notice
        await asyncio.to_thread(nodes.kill, node)


async def killed_head(stage: NodesStage) -> None:
    """With GCS, Serve's controller and whatever else was there; it is started again, and finds all that Ray knew."""
    await asyncio.to_thread(stage.service.nodes.head.kill)
    await asyncio.to_thread(stage.service.nodes.restart_head)


async def killed_gcs(stage: NodesStage) -> None:
    """Alone. `ray start --block` ends all of its node then, and is started again."""
    head = stage.service.nodes.head
    [gcs] = [each for each in await asyncio.to_thread(head.processes) if "gcs_server" in "".join(get_command(each)[:1])]
    gcs.send_signal(signal.SIGKILL)
    await asyncio.to_thread(head.await_end)
    await killed_head(stage)


async def deployed_twice(stage: NodesStage) -> None:
    """Other settings, then the first ones again: each time most replicas are restarted."""
    for changes in _CHANGES:
        stage.service.change(changes)
        await asyncio.to_thread(stage.service.deploy)


FAULTS: Final[dict[On, dict[str, Fault]]] = {
    "one machine": {
        "kill a model replica": killing(MODEL),
        "kill an inference server": killing_the_engine,
        "kill a dispatcher": killing(DISPATCHER),
        "kill an ingress replica": killing(INGRESS),
        "kill the moderator": killing(MODERATOR),
        "kill the webhook sender": killing(SENDER),
        "kill the Redis server": killing(REDIS),
        "kill the HTTP proxy": killing(PROXY),
        "kill the Serve controller": killing(CONTROLLER),
        "freeze a model replica": freezing(MODEL, 9),
        "freeze a dispatcher": freezing(DISPATCHER, 9),
        "freeze an ingress replica": freezing(INGRESS, 8),
        "freeze the moderator": freezing(MODERATOR, 6),
        "freeze the webhook sender": freezing(SENDER, 6),
        "freeze the HTTP proxy": freezing(PROXY, 3),
        "freeze the Serve controller": freezing(CONTROLLER, 6),
        "freeze the Redis server": freezing(REDIS, 2),
        "stall the Redis server for longer than clients wait": freezing(REDIS, 7),
        "fill the Redis server": full_store,
        "cut all Redis connections": cut_connections,
        "slow the moderator down": slow_moderator,
        "break a model's device": broken_device,
        "clock of an ingress replica 5 minutes ahead": skewing(INGRESS, _SKEW_S),
        "clock of a dispatcher 5 minutes behind": skewing(DISPATCHER, -_SKEW_S),
        "object store fails": failing_objects,
        "redeploy, scaled down": redeploy(1),
        "redeploy, scaled up": redeploy(2),
    },
    "a replicated Redis": {
        "fail over to a Redis replica": failover,
        "object server is slow": bad_object_server(10, delay_s=2),
        "object server is dead": bad_object_server(5, dead=True),  # longer than clients of object stores repeat
    },
    "nodes": {
        "kill a worker node": killed_worker,
        "kill a worker node every 30 s": killed_workers,
        "drain a worker node": drain,
        "take a worker node away after a notice": preempt,
        "kill the head node": killed_head,
        "kill Ray's GCS": killed_gcs,
        DEPLOYED: deployed_twice,
    },
}


@asynccontextmanager
async def connected_to_store(stage: Stage) -> AsyncIterator[Redis]:
    client = connection.connect(stage.redis_url)
    try:
        yield client
    finally:
        await client.aclose()


async def _until(started: Callable[[], bool]) -> None:
    """Until the fault has begun. Raises TimeoutError when it doesn't."""
    async with asyncio.timeout(_BEGINS_WITHIN_S):
        while not started():
            await asyncio.sleep(0.05)


def _signal(service: LocalService, name: str, number: signal.Signals) -> list[int]:
    """Sends it to one process of that name. Returns its pid, or nothing when none is up."""
    for process in service.processes(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
            return [process.pid]
    return []


@asynccontextmanager
async def _crashes_counted(stage: NodesStage) -> AsyncIterator[None]:
    before = await _settled_crashes(stage)
    yield
    stage.drained.append(await _settled_crashes(stage) - before)


async def _settled_crashes(stage: NodesStage) -> int:
    """That were ever counted, once each lease that is held now has ended or been prolonged."""
    async with connected_to_store(stage) as store:
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
