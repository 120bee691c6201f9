"""The service as operators run it on nodes of their own: deployed by `gen-serve deploy`, behind a load balancer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from support import neighbour
from support.load_balancer import LoadBalancer
from support.local_service import LocalService, merged
from support.neighbour import Neighbour
from support.ray_nodes import Node, RayNodes

from serve_app.encryption import new_key

ONE_A_NODE: Final = ("ingress", "dispatcher", "sender", "moderator")
WORKER: Final = {"model": 3.0, **dict.fromkeys(ONE_A_NODE, 1.0)}
"""Resources of a worker: places for replicas. Where there is room Serve likes to have all of a kind on one node. The
head has none."""
WORKERS: Final = 2
_MOST_NODES: Final = 6
_LOOKS, _TOO_BUSY = 5, "is it busy, or full?"
"""What the command says where no node has told in time whether it is fit: then it is to be tried again."""
_DEPLOYED_WITHIN_S: Final = 600.0
_ANSWERS_WITHIN_S: Final = 120.0


class ClusterService(LocalService):
    """Three nodes. What Ray's GCS keeps is in a store of its own, so that its head may die."""

    def __init__(
        self, folder: Path, repository: Path, redis_url: str, gcs_redis: str, overrides: Mapping[str, Any]
    ) -> None:
        """`gcs_redis` is HOST:PORT. `repository` is that of the release that is deployed first."""
        self.sealing_key = new_key()
        self.secrets = {"GEN_REDIS__URL": redis_url, "GEN_SEALING__KEYS": f'["{self.sealing_key}"]'}
        self._installed = folder / "release"
        self._installed.symlink_to(repository)
        super().__init__(folder, repository, **overrides)
        marks = {"GEN_CONFIG": str(self.config), "PYTHONPATH": self._path}
        kept = {"RAY_REDIS_ADDRESS": gcs_redis, "RAY_external_storage_namespace": "chaos"}
        self.nodes = RayNodes({**self.secrets, **marks}, kept)
        addresses = [f"{address}:{self.port}" for address in self.nodes.addresses(_MOST_NODES)]
        self.balancer = LoadBalancer(folder / "balancer", addresses, [neighbour.PATH])
        self.neighbour = Neighbour(self.balancer.base_url)
        self.base_url = self.balancer.base_url
        own = {"host": "0.0.0.0", "public_url": self.base_url}
        local = {"local_role": None}  # not for a service that is open to the network
        self.change({"service": own, "accounts": local, "ray": {"address": self.nodes.address}})

    def start(self) -> None:
        """Beside another application, which has to answer meanwhile."""
        self.nodes.start(WORKERS, WORKER)
        self.neighbour.deploy(self.nodes.address, self.port, self.nodes.environment, self.folder)
        self.await_neighbour()
        self.command("init")
        with self.neighbour.watched("deploy"):
            self.deploy()
        self.balancer.await_answer("/healthz", _ANSWERS_WITHIN_S)

    def stop(self) -> None:
        """Taken off the cluster first, in order."""
        self.await_neighbour()
        with self.neighbour.watched("down"):
            self.command("down")
        self.nodes.stop()

    def close(self) -> None:
        self.nodes.stop()
        self.balancer.stop()

    def change(self, settings: Mapping[str, Any]) -> None:
        """In the settings file, for the next `deploy`."""
        self.config.write_text(yaml.safe_dump(merged(yaml.safe_load(self.config.read_text()), settings)))

    def deploy(self) -> None:
        """What is in the settings file now."""
        for look in range(1, _LOOKS + 1):
            try:
                self.command("deploy")
            except RuntimeError as problem:
                if _TOO_BUSY not in str(problem) or look == _LOOKS:
                    raise
            else:
                return

    def await_neighbour(self) -> None:
        """Until the other application answers: a node that died before may have had all of it."""
        self.balancer.await_answer(neighbour.PATH, _ANSWERS_WITHIN_S)

    def command(self, name: str) -> None:
        """`gen-serve NAME --config …` on one of the nodes."""
        command = [str(Path(sys.executable).parent / "gen-serve"), name, "--config", str(self.config)]
        environment = os.environ | self._environment | self.nodes.environment
        ran = subprocess.run(
            command,
            # Ray has workers look for modules in the folder of whoever deploys first: not in a checkout.
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_DEPLOYED_WITHIN_S,
        )
        if ran.returncode != 0:
            raise RuntimeError(f"gen-serve {name} failed:\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}")

    @property
    def _path(self) -> str:
        return os.pathsep.join(map(str, (self._installed, self._installed / "clients" / "python")))

    def replace(self, node: Node) -> None:
        """It is gone, all at once, and another one comes in its place."""
        self.nodes.kill(node)
        self.nodes.add(WORKER).await_start()
