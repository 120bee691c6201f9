"""What is done to the service: each fault happens, lasts for some seconds where it can last, and is over."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias

import psutil
import redis
from support.local_service import LocalService

Fault: TypeAlias = Callable[[LocalService], Awaitable[None]]

MODEL: Final = "ServeReplica:gen:flux3-klein"
DISPATCHER: Final = "ServeReplica:gen:Dispatcher"
INGRESS: Final = "ServeReplica:gen:Ingress"
MODERATOR: Final = "ServeReplica:gen:Moderator"
SENDER: Final = "ServeReplica:gen:WebhookSender"
CONTROLLER: Final = "ServeController"
PROXY: Final = "haproxy"
REDIS: Final = "valkey-server"

_STORE_DOWN_S: Final = 3.0
_REDEPLOY_S: Final = 90.0


def killing(name: str) -> Fault:
    async def fault(service: LocalService) -> None:
        _signal(service, name, signal.SIGKILL)

    return fault


def freezing(name: str, seconds: float) -> Fault:
    """Its process stops in the middle of whatever it does, and goes on later as if nothing had been."""

    async def fault(service: LocalService) -> None:
        pids = _signal(service, name, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            for pid in pids:
                if psutil.pid_exists(pid):
                    os.kill(pid, signal.SIGCONT)

    return fault


async def cut_connections(service: LocalService) -> None:
    client = redis.Redis.from_url((service.folder / "data" / "redis" / "url").read_text())
    for _ in range(5):
        await asyncio.to_thread(client.client_kill_filter, _type="normal", skipme=True)
        await asyncio.to_thread(client.client_kill_filter, _type="pubsub", skipme=True)
        await asyncio.sleep(0.3)
    client.close()


async def failing_objects(service: LocalService) -> None:
    """Nothing can be stored or read: where the folder of results was, there is a file."""
    folder = service.folder / "data" / "objects"
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

    async def fault(service: LocalService) -> None:
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
    "cut all Redis connections": cut_connections,
    "object store fails": failing_objects,
    "redeploy, scaled down": redeployed(1, 1),
    "redeploy, scaled up": redeployed(2, 2),
}


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
