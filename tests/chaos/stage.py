"""The service under test, and what it stands on: itself, a replicated Redis and an object server, or several nodes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from support.local_service import LocalService, merged
from support.redis_process import RedisProcess
from support.replicated_redis import ReplicatedRedis

from chaos.cluster_service import ClusterService
from chaos.object_server import ObjectServer, serving
from serve_app.encryption import AtRest
from serve_app.launcher.embedded_redis import free_port

MODEL_NAME: Final = "flux3-klein"
_FAULTS_S: Final = 900
"""That faults on nodes may last beyond the load, on a busy machine."""
ON_DEMAND: Final = "flux2-pro"
_WRONG_CLOCK: Final = Path(__file__).with_name("wrong_clock")


@dataclass(frozen=True, slots=True)
class Stage:
    """Redis and the folder of objects are the service's own."""

    service: LocalService
    clocks: Path
    """Files by pids: by how many seconds the clock of a process is off."""
    breaks: Path
    """A file that breaks the device of the model's next step."""

    @property
    def redis_url(self) -> str:
        return (self.service.folder / "data" / "redis" / "url").read_text()

    @property
    def at_rest(self) -> AtRest:
        return AtRest([(self.service.folder / "data" / "sealing-key").read_text().strip()])

    @property
    def objects(self) -> Path:
        """Where objects lie under their keys."""
        return self.service.folder / "data" / "objects"


@dataclass(frozen=True, slots=True)
class ReplicatedStage(Stage):
    servers: ReplicatedRedis
    object_server: ObjectServer

    @property
    def redis_url(self) -> str:
        return self.servers.url

    @property
    def objects(self) -> Path:
        return self.object_server.folder


@dataclass(frozen=True, slots=True)
class NodesStage(Stage):
    """Redis and the folder of objects are nobody's own: all nodes have them."""

    service: ClusterService
    store_url: str
    drained: list[int] = field(default_factory=list)
    """Of each drain, how many strikes were counted meanwhile."""

    @property
    def redis_url(self) -> str:
        return self.store_url

    @property
    def at_rest(self) -> AtRest:
        return AtRest([self.service.sealing_key])

    @property
    def objects(self) -> Path:
        return self.service.folder / "objects"


@contextmanager
def standalone(folder: Path, repository: Path, seconds: float) -> Iterator[Stage]:
    """Not started. Whatever runs in the end is stopped."""
    service, clocks, breaks = _service(folder, repository, _settings(folder, seconds))
    try:
        yield Stage(service, clocks, breaks)
    finally:
        service.close()


@contextmanager
def replicated(folder: Path, repository: Path, seconds: float) -> Iterator[ReplicatedStage]:
    """The same on a primary, a replica and a sentinel, with an object server beside them. These run."""
    (folder / "redis").mkdir()
    servers = ReplicatedRedis(folder / "redis")
    try:
        servers.start()
        with serving(folder / "bucket") as objects:
            below = {"redis": {"url": servers.url, "replicas": 1}, "objects": objects.settings}
            service, clocks, breaks = _service(folder, repository, _settings(folder, seconds) | below)
            try:
                yield ReplicatedStage(service, clocks, breaks, servers, objects)
            finally:
                service.close()
    finally:
        servers.stop()


@contextmanager
def on_nodes(folder: Path, repository: Path, seconds: float) -> Iterator[NodesStage]:
    """On a head and two workers. A Redis server for the service runs, and another one for Ray's own state."""
    home, clocks = folder / "service", folder / "clocks"
    home.mkdir()
    clocks.mkdir()
    with _store(folder / "redis") as store, _store(folder / "gcs") as gcs:
        url = f"redis://127.0.0.1:{store.port}/0"
        settings = merged(_settings(folder, seconds + _FAULTS_S), _on_nodes(home / "objects"))
        service = ClusterService(home, repository, url, f"127.0.0.1:{gcs.port}", settings)
        try:
            yield NodesStage(service, clocks, _breaks(folder), url)
        finally:
            service.close()


@contextmanager
def _store(folder: Path) -> Iterator[RedisProcess]:
    settings = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}
    server = RedisProcess(folder, free_port(), settings)
    try:
        yield server
    finally:
        server.kill()


def _on_nodes(objects: Path) -> dict[str, Any]:
    """Two of each, since one dies with its node. Models are where there is a place for them; one comes when needed."""
    model = {"actor": {"num_cpus": 0, "resources": {"model": 1}}, "drain_s": 10}
    always, on_demand = ({"min_replicas": 2, "max_replicas": 2}, {"min_replicas": 0, "downscale_delay_s": 10})
    return {
        "objects": {"url": f"file://{objects}"},
        "service": {"actor": _one_a_node("ingress")},
        "dispatcher": {"replicas": 2, "drain_s": 5, "actor": _one_a_node("dispatcher")},
        "webhooks": {"replicas": 2, "actor": _one_a_node("sender")},
        "moderation": {"min_replicas": 2, "max_replicas": 2, "actor": _one_a_node("moderator")},
        "models": {
            MODEL_NAME: {"autoscaling": always, **model},
            ON_DEMAND: {"checkpoint": "simulated/100ms", "autoscaling": {**on_demand, "max_replicas": 1}, **model},
        },
    }


def _one_a_node(resource: str) -> dict[str, Any]:
    return {"num_cpus": 0, "resources": {resource: 1}}


def _service(folder: Path, repository: Path, settings: dict[str, Any]) -> tuple[LocalService, Path, Path]:
    home, clocks = folder / "service", folder / "clocks"
    home.mkdir()
    clocks.mkdir()
    path = os.pathsep.join(filter(None, (str(_WRONG_CLOCK), os.environ.get("PYTHONPATH"))))
    environment = {"PYTHONPATH": path, "CHAOS_CLOCKS": str(clocks)}
    return LocalService(home, repository, environment, **settings), clocks, _breaks(folder)


def _breaks(folder: Path) -> Path:
    return folder / "breaks"


def _settings(folder: Path, seconds: float) -> dict[str, Any]:
    return {
        "service": {"ingress_replicas": 2},
        "tasks": {"lease_s": 3, "max_active": 5000, "requests_per_s": 1000, "burst": 1000},
        "dispatcher": {"stall_s": 6, "start_s": 60},
        "webhooks": {
            "replicas": 1,
            # For longer than the run: one receiver is dead for most of it.
            "schedule_s": [0.5, 1, 2, 4, *[8] * math.ceil(max(seconds, 60) / 6)],
            "timeout_s": 3,
            "claim_s": 3,
            "shut_s": 1,
            "most_shut_s": 4,
        },
        "models": {
            MODEL_NAME: {"checkpoint": f"simulated/100ms?breaks={_breaks(folder)}"},
            # Real pictures: loaded from the start, since loading takes longer than a short run.
            ON_DEMAND: {"autoscaling": {"min_replicas": 1, "max_replicas": 1}},
        },
    }
