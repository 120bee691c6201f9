"""The service under test on one machine, on a replicated Redis and an object server, or on several nodes."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import yaml
from support.local_service import LocalService, merge
from support.redis_process import RedisProcess, ReplicatedRedis
from support.tiny_classifier import moderation_settings

from chaos.nodes import ClusterService
from chaos.object_server import ObjectServer, serving
from serve_app.encryption import AtRest
from serve_app.launcher.embedded_redis import free_port

Topology: TypeAlias = Literal["one machine", "a replicated Redis", "nodes"]
MODEL_NAME: Final = "flux3-klein"
ON_DEMAND: Final = "flux2-pro"
IN_ENGINE: Final = "flux2-pro-snapshot"
"""Model that an inference server runs, a child of the replica."""

_LONG_S: Final = 20.0
"""Seconds of load from which models and moderators that load torch take part."""


@dataclass(frozen=True, slots=True)
class Testbed:
    """A service on one machine, with its own Redis and folder of objects."""

    service: LocalService
    clocks: Path
    """Folder of files named by pid: the offset of a process's clock in seconds."""
    breaks: Path
    """File that breaks the device at the model's next step."""

    @property
    def redis_url(self) -> str:
        return (self.service.folder / "data" / "redis" / "url").read_text()

    @property
    def at_rest(self) -> AtRest:
        return AtRest([(self.service.folder / "data" / "sealing-key").read_text().strip()])

    @property
    def objects(self) -> Path:
        """Folder of the objects."""
        return self.service.folder / "data" / "objects"


@dataclass(frozen=True, slots=True)
class ReplicatedTestbed(Testbed):
    servers: ReplicatedRedis
    object_server: ObjectServer

    @property
    def redis_url(self) -> str:
        return self.servers.url

    @property
    def objects(self) -> Path:
        return self.object_server.folder


@dataclass(frozen=True, slots=True)
class ClusterTestbed(Testbed):
    """A service on nodes, which share Redis and the folder of objects."""

    service: ClusterService
    store_url: str
    drained: list[int] = field(default_factory=list)
    """Crashes counted during each drain."""

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
def open_testbed(topology: Topology, folder: Path, repository: Path, seconds: float) -> Iterator[Testbed]:
    """Starts the servers of a topology, but not the service. Stops all in the end."""
    home, clocks, breaks = folder / "service", folder / "clocks", folder / "breaks"
    for each in (home, clocks):
        each.mkdir()
    path = os.pathsep.join(filter(None, (str(Path(__file__).with_name("wrong_clock")), os.environ.get("PYTHONPATH"))))
    environment = {"PYTHONPATH": path, "CHAOS_CLOCKS": str(clocks)}
    settings = _settings(breaks, seconds, repository)
    # On nodes each death of a node would make a replica load torch again.
    if topology != "nodes" and seconds >= _LONG_S:
        settings |= {"moderation": moderation_settings(folder / "classifier")}
    if topology == "one machine":
        with _closing(LocalService(home, repository, environment, **settings)) as service:
            yield Testbed(service, clocks, breaks)
    elif topology == "nodes":
        with _store(folder / "redis") as store, _store(folder / "gcs") as gcs:
            url = f"redis://127.0.0.1:{store.port}/0"
            settings = merge(settings, _on_nodes(home / "objects"))
            cluster = ClusterService(home, repository, url, f"127.0.0.1:{gcs.port}", settings)
            with _closing(cluster):
                yield ClusterTestbed(cluster, clocks, breaks, url)
    else:
        with _open_replicated_redis(folder / "redis") as servers, serving(folder / "bucket") as objects:
            settings |= {"redis": {"url": servers.url, "replicas": 1}, "objects": objects.settings}
            with _closing(LocalService(home, repository, environment, **settings)) as service:
                yield ReplicatedTestbed(service, clocks, breaks, servers, objects)


@contextmanager
def _closing(service: LocalService) -> Iterator[LocalService]:
    try:
        yield service
    finally:
        service.close()


@contextmanager
def _open_replicated_redis(folder: Path) -> Iterator[ReplicatedRedis]:
    folder.mkdir()
    servers = ReplicatedRedis(folder)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()


@contextmanager
def _store(folder: Path) -> Iterator[RedisProcess]:
    settings = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}
    server = RedisProcess(folder, free_port(), settings)
    try:
        yield server
    finally:
        server.kill()


def _on_nodes(objects: Path) -> dict[str, Any]:
    """Returns settings with two replicas of each deployment on different nodes, and a model on demand."""

    def one_a_node(resource: str) -> dict[str, Any]:
        return {"num_cpus": 0, "resources": {resource: 1}}

    model = {"ray_actor_options": one_a_node("model"), "graceful_shutdown_timeout_s": 10}
    always, on_demand = ({"min_replicas": 2, "max_replicas": 2}, {"min_replicas": 0, "downscale_delay_s": 10})
    return {
        "objects": {"url": f"file://{objects}"},
        "service": {"ray_actor_options": one_a_node("ingress")},
        "dispatcher": {"num_replicas": 2, "drain_s": 5, "ray_actor_options": one_a_node("dispatcher")},
        "webhooks": {"num_replicas": 2, "ray_actor_options": one_a_node("sender")},
        "models": {
            MODEL_NAME: {"autoscaling_config": always, **model},
            ON_DEMAND: {
                "checkpoint": "simulated/100ms",
                "autoscaling_config": {**on_demand, "max_replicas": 1},
                **model,
            },
        },
    }


def _settings(breaks: Path, seconds: float, repository: Path) -> dict[str, Any]:
    shipped = yaml.safe_load((repository / "configs" / "local.yaml").read_text())["models"][IN_ENGINE]
    server = f"{sys.executable} {repository / 'tests/support/inference_server.py'} {{port}} sglang 0.5"
    engine = {"backend": "engine", "engine": {"kind": "sglang", "command": server}, "max_running": 8}
    # Retries last longer than the run: one destination is dead for most of it.
    retries = [0.5, 1, 2, 4, *[8] * math.ceil((seconds + 900) / 6)]
    # It loads at the start, and makes real images in long runs.
    on_demand: dict[str, Any] = {"autoscaling_config": {"min_replicas": 1, "max_replicas": 1}}
    if seconds < _LONG_S:
        on_demand |= {"checkpoint": "simulated/100ms", "matting": None}
    return {
        "service": {"num_replicas": 2},
        "tasks": {"lease_s": 3, "max_active": 5000, "requests_per_s": 1000, "burst": 1000},
        "dispatcher": {"stall_s": 6, "start_s": 60},
        "webhooks": {
            "num_replicas": 1,
            "schedule_s": retries,
            "timeout_s": 3,
            "claim_s": 3,
            "circuit_open_s": 1,
            "max_circuit_open_s": 4,
        },
        "models": {
            MODEL_NAME: {"checkpoint": f"simulated/100ms?breaks={breaks}"},
            ON_DEMAND: on_demand,
            IN_ENGINE: dict.fromkeys(shipped) | engine,  # an engine takes no settings of checkpoints
        },
    }
