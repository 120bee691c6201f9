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
from typing import Final, TypeAlias

import psutil
from redis.asyncio import Redis
from support.local_service import LocalService

from chaos.stage import ReplicatedStage, Stage
from serve_app.storage import connection

Fault: TypeAlias = Callable[[Stage], Awaitable[None]]
ReplicatedFault: TypeAlias = Callable[[ReplicatedStage], Awaitable[None]]

MODEL: Final = "ServeReplica:gen:flux3-klein"
DISPATCHER: Final = "ServeReplica:gen:Dispatcher"
INGRESS: Final = "ServeReplica:gen:Ingress"
MODERATOR: Final = "ServeReplica:gen:Moderator"
SENDER: Final = "ServeReplica:gen:WebhookSender"
CONTROLLER: Final = "ServeController"
PROXY: Final = "haproxy"
REDIS: Final = "valkey-server"

_STORE_DOWN_S: Final = 3.0
_SLOW_CALL_S: Final = 2.0
_SLOW_STORE_S: Final = 10.0
_DEAD_STORE_S: Final = 5.0
_FULL_S: Final = 5.0
_FULL: Final = 0.95
"""The share of what is used that may be used: what ends meanwhile makes no room for what begins."""
_SLOW_S: Final = 8.0
_STOPPED_S, _RUNNING_S = 1.0, 0.1
_SKEW_S: Final = 300.0
_SKEWED_S: Final = 8.0
_BEGINS_WITHIN_S: Final = 30.0
_AWAY_S: Final = 2.0
_REDEPLOY_S: Final = 90.0


def killing(name: str) -> Fault:
    async def fault(stage: Stage) -> None:
        _signal(stage.service, name, signal.SIGKILL)

    return fault


def freezing(name: str, seconds: float) -> Fault:
    """Its process stops in the middle of whatever it does, and goes on later as if nothing had been."""

    async def fault(stage: Stage) -> None:
        pids = _signal(stage.service, name, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            for pid in pids:
                _resume(pid)

    return fault


def slowing(name: str) -> Fault:
    """Its process only runs for a moment now and then: whatever it is asked for takes a second."""

    async def fault(stage: Stage) -> None:
        over = asyncio.get_running_loop().time() + _SLOW_S
        while asyncio.get_running_loop().time() < over:
            await freezing(name, _STOPPED_S)(stage)
            await asyncio.sleep(_RUNNING_S)

    return fault


def skewing(name: str, seconds: float) -> Fault:
    """The wall clock of its process jumps by so many seconds, and later jumps back."""

    async def fault(stage: Stage) -> None:
        newest = max(stage.service.processes(name), key=psutil.Process.create_time)  # not one that is on its way out
        clock = stage.clocks / str(newest.pid)
        written = clock.with_suffix(".written")
        written.write_text(str(seconds))
        written.rename(clock)
        try:
            await _until(clock.with_suffix(".heard").exists)
            await asyncio.sleep(_SKEWED_S)
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
        await client.config_set("maxmemory", int(_FULL * used))
        try:
            await asyncio.sleep(_FULL_S)
        finally:
            await client.config_set("maxmemory", 0)


async def failover(stage: ReplicatedStage) -> None:
    """The primary is killed, its replica takes over, and the one that was killed is back as a replica."""
    gone = await asyncio.to_thread(stage.servers.kill_primary)
    await asyncio.to_thread(stage.servers.await_failover, gone)
    await asyncio.sleep(_AWAY_S)
    await asyncio.to_thread(stage.servers.return_as_replica, gone)


async def slow_objects(stage: ReplicatedStage) -> None:
    stage.object_server.delay_s = _SLOW_CALL_S
    try:
        await asyncio.sleep(_SLOW_STORE_S)
    finally:
        stage.object_server.delay_s = 0.0


async def dead_objects(stage: ReplicatedStage) -> None:
    """For longer than clients of object stores repeat themselves."""
    stage.object_server.dead = True
    try:
        await asyncio.sleep(_DEAD_STORE_S)
    finally:
        stage.object_server.dead = False


async def failing_objects(stage: Stage) -> None:
    """Nothing can be stored or read: where the folder of results was, there is a file."""
    folder = stage.objects
    aside = folder.with_name("objects-aside")
    folder.rename(aside)
    folder.write_bytes(b"")
    try:
        await asyncio.sleep(_STORE_DOWN_S)
    finally:
        folder.unlink()
        aside.rename(folder)


def redeployed(dispatchers: int, senders: int) -> Fault:
    """The application is deployed again with other replica counts, as an upgrade does it."""

    async def fault(stage: Stage) -> None:
        service = stage.service
        changes = {"GEN_DISPATCHER__REPLICAS": str(dispatchers), "GEN_WEBHOOKS__REPLICAS": str(senders)}
        script = Path(__file__).with_name("redeploy.py")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(script),
            str(service.config),
            _address(service),
            env=_environment(service) | changes,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        _, problems = await asyncio.wait_for(process.communicate(), _REDEPLOY_S)
        if process.returncode != 0:
            raise RuntimeError(f"the redeploy failed:\n{problems.decode()[-2000:]}")

    return fault


FAULTS: Final[dict[str, Fault]] = {
    "kill a model replica": killing(MODEL),
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
    "slow the moderator down": slowing(MODERATOR),
    "break a model's device": broken_device,
    "clock of an ingress replica 5 minutes ahead": skewing(INGRESS, _SKEW_S),
    "clock of a dispatcher 5 minutes behind": skewing(DISPATCHER, -_SKEW_S),
    "object store fails": failing_objects,
    "redeploy, scaled down": redeployed(1, 1),
    "redeploy, scaled up": redeployed(2, 2),
}

"""Of a service that stands alone."""

REPLICATED_FAULTS: Final[dict[str, ReplicatedFault]] = {
    "fail over to a Redis replica": failover,
    "object server is slow": slow_objects,
    "object server is dead": dead_objects,
}
"""Of one on a replicated Redis and an object server."""


@asynccontextmanager
async def connected_to_store(stage: Stage) -> AsyncIterator[Redis]:
    client = connection.connect(stage.redis_url)
    try:
        yield client
    finally:
        await client.aclose()


async def _until(begun: Callable[[], bool]) -> None:
    """Until the fault has begun. Raises TimeoutError when it doesn't."""
    async with asyncio.timeout(_BEGINS_WITHIN_S):
        while not begun():
            await asyncio.sleep(0.05)


def _resume(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _signal(service: LocalService, name: str, number: signal.Signals) -> list[int]:
    """Sends it to one process of that name. Returns its pid, or nothing when none is up."""
    for process in service.processes(name):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            continue
        return [process.pid]
    return []


def _environment(service: LocalService) -> dict[str, str]:
    """That of the service's controller, so that a driver beside it has Ray's switches."""
    return dict(service.processes(CONTROLLER)[0].environ())


def _address(service: LocalService) -> str:
    """Of the Ray cluster."""
    for process in service.processes("--gcs-address="):
        for part in process.cmdline():
            if part.startswith("--gcs-address="):
                return part.partition("=")[2]
    raise RuntimeError("the service has no cluster")
